"""Starts with a dedup key: one run for each key at a time, whoever starts and whoever dies."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from durable import Queue, every, step, workflow
from durable.client import Client, purging
from durable.errors import Conflict, InvalidId, NotFound, UsageError
from durable.protocol import names
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend
from tests.client.dying import MODES, Mode, dies

pytestmark = pytest.mark.anyio

KEY = "ada@example.org"
CLAIM = names.dedup_key("dedup", KEY)
ran: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


async def note(text: str) -> str:
    ran.append(text)
    return text


@step(name="dedup toil")
async def toil(text: str) -> str:
    return text


@workflow(name="dedup stepped", queue="dedup")
async def stepped(text: str) -> str:
    return await toil(text)


plain = workflow(name="dedup plain", queue="dedup")(note)
limited = workflow(name="dedup limited", queue=Queue("dedup", concurrency=1))(note)
BOTH = pytest.mark.parametrize("flow", [plain, limited], ids=["plain", "limited"])


async def work(store: Store, until: Callable[[], Awaitable[Any]]) -> None:
    """A worker that serves the queue until that returns."""
    flows = {flow.name: flow.definition for flow in (plain, limited, stepped)}
    worker = Worker(store, flows, Options(queues=("dedup",)))
    async with anyio.create_task_group() as tasks:
        await tasks.start(worker.run)
        with anyio.fail_after(20):
            await until()
        worker.stop()


async def runs(store: Store) -> list[str]:
    """The ids that have a `start`."""
    return [s.name.split("/")[1] async for s in store.list("runs/") if s.name.endswith("/start")]


@BOTH
async def test_a_second_start_gives_the_run_that_is_not_over(store: Store, flow: Any) -> None:
    """Whatever its input; once that run is over, the key is free and its claim gone."""
    keyed = flow.options(dedup_key=KEY)
    async with Client(store) as client:
        first = await client.start(keyed, "a")
        second = await client.start(keyed, "b")
        other = await client.start(flow.options(dedup_key="bob@example.org"), "c")

        assert (second.id, second.instance) == (first.id, first.instance)
        assert other.id != first.id
        await work(store, first.result)
        assert await second.result() == "a"
        third = await client.start(keyed, "d")
        assert third.id != first.id
        await work(store, third.result)
        await work(store, other.result)

    assert set(ran) == {"a", "c", "d"}  # a body that a stopped worker left runs again
    assert await store.read(CLAIM) is None


async def test_run_gives_the_result_of_the_run_that_carries_the_key(store: Store) -> None:
    """`client.run` waits for the other; alone it carries the run itself."""
    keyed = plain.options(dedup_key=KEY)
    async with Client(store) as client:
        first = await client.start(keyed, "a")
        results = []

        async def run() -> None:
            results.append(await client.run(keyed, "b"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await work(store, first.result)

        assert results == ["a"]
        assert await client.run(keyed, "c") == "c"
        assert await client.run(limited.options(dedup_key=KEY), "d") == "d"

    assert ran == ["a", "c", "d"]


@BOTH
async def test_concurrent_starts_make_one_run(store: Store, flow: Any) -> None:
    """Of eight clients at once all get one handle."""
    ids = set()

    async def start(text: str) -> None:
        async with Client(store) as client:
            ids.add((await client.start(flow.options(dedup_key=KEY), text)).id)

    async with anyio.create_task_group() as tasks:
        for i in range(8):
            tasks.start_soon(start, str(i))

    assert len(ids) == 1
    assert set(await runs(store)) == ids


@BOTH
@pytest.mark.parametrize("at", range(12))
async def test_a_start_between_two_calls_of_another_makes_no_second_run(flow: Any, at: int) -> None:
    """One start stands before each of its calls in turn while another takes place as a whole."""
    bucket, calls, seen = Bucket(), 0, set()
    stopped, go_on = anyio.Event(), anyio.Event()
    keyed = flow.options(dedup_key=KEY)

    class Halting(MemoryBackend):
        async def _reached(self) -> None:
            nonlocal calls
            calls += 1
            if calls == at + 1:
                stopped.set()
                await go_on.wait()

        async def read(self, *args: Any, **kwargs: Any) -> Any:
            await self._reached()
            return await super().read(*args, **kwargs)

        async def create(self, *args: Any, **kwargs: Any) -> Any:
            await self._reached()
            return await super().create(*args, **kwargs)

    async def slow() -> None:
        async with Client(Store(Halting(bucket))) as client:
            seen.add((await client.start(keyed, "a")).id)
        stopped.set()

    async with anyio.create_task_group() as tasks, Client(Store(MemoryBackend(bucket))) as client:
        tasks.start_soon(slow)
        await stopped.wait()
        seen.add((await client.start(keyed, "b")).id)
        go_on.set()

    store = Store(MemoryBackend(bucket))
    assert len(seen) == 1
    assert set(await runs(store)) == seen


@BOTH
@pytest.mark.parametrize("mode", MODES)
async def test_a_start_that_dies_at_any_call_leaves_no_orphan(flow: Any, mode: Mode) -> None:
    """The next start with the key gives a run that ends; there is no other."""
    deaths, died = 0, True
    keyed = flow.options(dedup_key=KEY)
    while died:
        bucket = Bucket()
        store = Store(MemoryBackend(bucket))

        async def start(dying: Store) -> None:
            await Client(dying).start(keyed, "a")

        died = await dies(bucket, mode, deaths, start)
        async with Client(store) as client:
            handle = await client.start(keyed, "b")
            assert await runs(store) == [handle.id]
            await work(store, handle.result)
            assert await store.read(CLAIM) is None
        deaths += died
    assert deaths > 4


@pytest.mark.parametrize("mode", MODES)
async def test_a_purge_that_dies_at_any_call_frees_the_key(mode: Mode) -> None:
    """A purged run carries nothing; its id may be started again under the key."""
    deaths, died = 0, True
    keyed = plain.options(dedup_key=KEY)
    while died:
        bucket = Bucket()
        store = Store(MemoryBackend(bucket))
        async with Client(store) as client:
            await client.start(keyed.options(id="x"), "a")

            async def purge(dying: Store) -> None:
                await purging.purge(dying, "x", force=True)

            died = await dies(bucket, mode, deaths, purge)
            with contextlib.suppress(NotFound):
                await purging.purge(store, "x", force=True)
            again = await client.start(keyed.options(id="x"), "b")
            assert again.id == (await client.start(keyed, "c")).id == "x"
            await work(store, again.result)
            assert await again.result() == "b"
        deaths += died
    assert deaths > 4


@pytest.mark.parametrize("mode", MODES)
async def test_a_revival_that_dies_at_any_call_is_finished(mode: Mode) -> None:
    """The id of a purged run, started again with a key: the next start with the key goes on."""
    deaths, died = 0, True
    keyed = plain.options(dedup_key=KEY)
    while died:
        bucket = Bucket()
        store = Store(MemoryBackend(bucket))
        async with Client(store) as client:
            await client.start(keyed.options(id="x"), "a")
            await purging.purge(store, "x", force=True)

            async def start(dying: Store) -> None:
                await Client(dying).start(keyed.options(id="x"), "b")

            died = await dies(bucket, mode, deaths, start)
            handle = await client.start(keyed, "c")
            await work(store, handle.result)
            assert len(ran) == 1
            ran.clear()
        deaths += died
    assert deaths > 5


async def test_the_same_id_again_is_the_same_run(client: Client) -> None:
    """With the key or without; with another input it is a conflict, as always."""
    first = await client.start(plain.options(id="x"), "a")
    again = await client.start(plain.options(id="x", dedup_key=KEY), "a")

    assert again.instance == first.instance
    assert (await client.start(plain.options(id="y", dedup_key=KEY), "b")).id == "y"
    with pytest.raises(Conflict):
        await client.start(plain.options(id="x", dedup_key=KEY), "c")


async def test_a_fork_does_not_carry_the_key(client: Client, store: Store) -> None:
    """It is made by hand beside the run that does."""
    handle = await client.start(stepped.options(id="x", dedup_key=KEY), "a")
    await work(store, handle.result)
    await client.fork("x", "dedup toil", new_id="y")

    assert (await client.start(plain.options(dedup_key=KEY), "b")).id != "y"


async def test_a_start_costs_one_write_more(bucket: Bucket) -> None:
    """The claim; and three reads of objects that are not there, or none."""
    made: list[str] = []

    def seen(call: Call) -> Fault | None:
        made.append(call.verb)
        return None

    client = Client(Store(MemoryBackend(bucket, faults=seen)))
    await client.start(plain, "a")
    without = made.count("create")
    made.clear()
    await client.start(plain.options(dedup_key=KEY), "b")

    assert made.count("create") - without in {0, 1}  # a bell that rings already is no write


async def test_keys_that_cannot_be_are_refused(client: Client) -> None:
    """At the options; and where something else keeps runs apart."""
    with pytest.raises(InvalidId):
        plain.options(dedup_key="")
    with pytest.raises(UsageError, match="one run for each tick"):
        await client.schedules.create("s", every("1h"), plain.options(dedup_key=KEY), "a")
