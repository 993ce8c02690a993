"""Singletons through the client: refused, joined, skipped; what is shown of them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from durable import Skipped, step, workflow
from durable.client import Client
from durable.errors import InvalidDefinition, InvalidId, RunFailed, SingletonTaken, UsageError
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.memory import Bucket
from tests.facts import becomes_true

pytestmark = pytest.mark.anyio

events: dict[str, anyio.Event] = {}


@pytest.fixture(autouse=True)
def _gate() -> None:
    events.clear()


def event(name: str) -> anyio.Event:
    return events.setdefault(name, anyio.Event())


@step(name="client-singleton gate")
async def gate(name: str) -> str:
    event(f"{name} inside").set()
    await event(f"{name} open").wait()
    return name


def made(on_conflict: Any, **more: Any) -> Any:
    async def fn(name: str) -> str:
        return await gate(name)

    return workflow(
        name=f"client-singleton {on_conflict}", singleton="one", on_conflict=on_conflict, **more
    )(fn)


RAISE, SKIP, JOIN, QUEUE = made("raise"), made("skip"), made("join"), made("queue")


async def hold(store: Store, kind: Any, tasks: Any) -> None:
    """Run `first` until its body is entered."""

    async def run() -> None:
        async with Client(store) as client:
            await client.run(kind.options(id="first"), "a")

    tasks.start_soon(run)
    await event("a inside").wait()


async def test_raise_refuses_at_the_start(bucket: Bucket, store: Store, client: Client) -> None:
    """The client looks before it starts anything: no run is made."""
    async with anyio.create_task_group() as tasks:
        await hold(store, RAISE, tasks)
        for verb in (client.start, client.run):
            with pytest.raises(SingletonTaken, match="run 'first'") as caught:
                await verb(RAISE.options(id="second"), "b")
            assert caught.value.holder == "first"
            assert caught.value.key == "one"
        names = [item.name for item in bucket.list("", None).items]
        assert not any("second" in name for name in names)
        event("a open").set()


async def test_the_same_run_again_is_no_conflict(store: Store, client: Client) -> None:
    """The id that holds the lock may be asked for again."""
    async with anyio.create_task_group() as tasks:
        await hold(store, RAISE, tasks)
        handle = await client.start(RAISE.options(id="first"), "a")
        event("a open").set()

        assert await handle.result(timeout=20) == "a"


async def test_join_gives_the_handle_of_the_other(store: Store, client: Client) -> None:
    """Whatever the arguments: there is one run."""
    async with anyio.create_task_group() as tasks:
        await hold(store, JOIN, tasks)
        handle = await client.start(JOIN.options(id="second"), "b")
        event("a open").set()

        assert handle.id == "first"
        assert await handle.result(timeout=20) == "a"
        event("b open").set()
        assert await client.run(JOIN, "b") == "b"


async def test_skip_returns_who_goes_on(store: Store, client: Client) -> None:
    """An outcome that is false, and is shown as such; afterwards the lock is free."""
    async with anyio.create_task_group() as tasks:
        await hold(store, SKIP, tasks)
        skipped = await client.run(SKIP.options(id="second"), "b")
        assert isinstance(skipped, Skipped)
        assert not skipped
        assert skipped.holder == "first"
        handle = await client.get("second")
        status = await handle.status()
        assert status == "completed"
        assert status.reason.startswith("skipped: run 'first' has the lock since")
        listed = {r.id: r.status.reason async for r in client.list(status="completed")}
        assert listed["second"] == status.reason
        event("a open").set()
    event("c open").set()

    assert await client.run(SKIP.options(id="third"), "c") == "c"


async def test_queued_runs_of_clients_go_on_without_a_worker(store: Store) -> None:
    """Two scripts that run the same singleton wait for each other."""
    results = []

    async def run(name: str) -> None:
        async with Client(store) as client:
            results.append(await client.run(QUEUE.options(id=name), name))

    async def b_is_parked() -> bool:
        async with Client(store) as client:
            return await (await client.get("b")).status() == "parked"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, "a")
        await event("a inside").wait()
        tasks.start_soon(run, "b")
        with anyio.move_on_after(0.3):
            await event("b inside").wait()
        assert not event("b inside").is_set()
        async with Client(store) as client:
            await becomes_true(b_is_parked)
            status = await (await client.get("b")).status()
            assert status.reason == "for lock 'one', which run 'a' holds"
        event("a open").set()
        event("b open").set()

    assert results == ["a", "b"]


async def test_the_error_of_a_run_that_lost_the_race(store: Store, client: Client) -> None:
    """Between the look and the take somebody was quicker: then the run itself fails."""
    worker = Worker(store, {RAISE.name: RAISE.definition}, Options())
    async with anyio.create_task_group() as tasks:
        handle = await client.start(RAISE.options(id="second"), "b")
        await hold(store, RAISE, tasks)
        await tasks.start(worker.run)
        with pytest.raises(RunFailed) as caught:
            await handle.result(timeout=20)
        worker.stop()
        event("a open").set()

    assert isinstance(caught.value.__cause__, SingletonTaken)
    assert caught.value.__cause__.holder == "first"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"singleton": "k", "on_conflict": "retry"}, "on_conflict='retry'"),
        ({"singleton": 5}, "singleton=5 is no key"),
        ({"singleton": "k", "lock_ttl": 0}, "lock_ttl=0"),
        (
            {"singleton": "k", "on_conflict": "wait", "attempt_every": "1s"},
            "attempt_every='1s' without max_attempts= is no use",
        ),
        ({"attempt_every": "1s"}, "attempt_every and lock_ttl are options of a singleton"),
        ({"max_wait": 5}, "of a singleton"),
        ({"on_conflict": "skip"}, "of a singleton"),
        ({"singleton": "k", "on_conflict": "skip", "max_wait": 5}, "does not wait"),
    ],
)
def test_options_that_do_not_fit(options: Any, said: str) -> None:
    """Refused where they are written."""
    with pytest.raises(InvalidDefinition, match=said):
        workflow(name="client-singleton bad", **options)


async def test_keys_that_cannot_be(client: Client) -> None:
    """The function's answer is checked at the start, before anything is written."""

    async def fn(key: Any) -> None: ...

    bad = workflow(name="client-singleton keys", singleton=lambda key: key)(fn)

    with pytest.raises(UsageError, match="gave int"):
        await client.start(bad, 5)
    with pytest.raises(UsageError, match="raised KeyError"):
        await client.start(workflow(name="client-singleton map", singleton={}.__getitem__)(fn), "a")
    with pytest.raises(InvalidId):
        await client.start(bad, "")
