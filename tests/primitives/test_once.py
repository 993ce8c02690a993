"""Outside effects that take place once for a key."""

from __future__ import annotations

import datetime as dt
from typing import Any

import anyio
import pytest

import durable
from durable import step, sync, workflow
from durable.client import Client
from durable.errors import Conflict, InvalidId, NotInWorkflow, OutcomeUnknown, UnencodableResult
from durable.protocol import primitives
from durable.store import Store
from durable.store.memory import Bucket, MemoryBackend
from tests.client.dying import MODES, Mode, dies

pytestmark = pytest.mark.anyio

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    done.clear()


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def client(bucket: Bucket) -> Client:
    return Client(Store(MemoryBackend(bucket)))


async def send(to: str) -> dt.date:
    done.append(to)
    return dt.date(2026, 11, 29)


def send_sync(to: str) -> str:
    done.append(to)
    return f"sent to {to}"


async def fail(to: str) -> None:
    done.append(to)
    raise ConnectionError(to)


async def test_it_takes_place_once(client: Client, bucket: Bucket) -> None:
    """Whoever asks later gets the recorded value, exactly; two writes, then one refused."""
    first = await client.once("mail", send, "ana")
    writes = dict(bucket.calls)
    second = await client.once("mail", send, "ana")

    assert first == second == dt.date(2026, 11, 29)
    assert done == ["ana"]
    assert writes == {"create": 2}
    assert await client.once("other", send_sync, "bo") == "sent to bo"
    assert done == ["ana", "bo"]


async def test_of_many_at_once_one_does_it(client: Client) -> None:
    """The others are told that it is under way, and get the value once it is there."""
    begun, go_on = anyio.Event(), anyio.Event()

    async def slow() -> str:
        done.append("slow")
        begun.set()
        await go_on.wait()
        return "done"

    said: list[str] = []

    async def ask() -> None:
        try:
            said.append(await client.once("k", slow))
        except OutcomeUnknown:
            said.append("unknown")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await begun.wait()
        for _ in range(5):
            await ask()
        go_on.set()
    await ask()

    assert said == ["unknown"] * 5 + ["done", "done"]
    assert done == ["slow"]


async def test_one_that_raised_may_be_tried_again(client: Client) -> None:
    """The error is raised, and recorded; the next to ask makes the next try."""
    with pytest.raises(ConnectionError):
        await client.once("k", fail, "ana")
    assert await client.once("k", send_sync, "bo") == "sent to bo"
    assert await client.once("k", send_sync, "cy") == "sent to bo"
    assert done == ["ana", "bo"]


async def test_a_value_that_cannot_be_stored(client: Client) -> None:
    """The effect has taken place: it is not done again, though nobody knows its value."""

    async def odd() -> Any:
        done.append("odd")
        return object()

    with pytest.raises(UnencodableResult):
        await client.once("k", odd)
    assert await client.once("k", odd) is None
    assert done == ["odd"]


@pytest.mark.parametrize("mode", MODES)
async def test_whatever_call_the_process_dies_at(mode: Mode) -> None:
    """It takes place at most once; who comes later knows, or knows that nobody does."""
    at = 0
    heard = set()
    while True:
        done.clear()
        bucket = Bucket()
        died = await dies(bucket, mode, at, lambda store: Client(store).once("k", send_sync, "ana"))
        client = Client(Store(MemoryBackend(bucket)))
        try:
            heard.add(await client.once("k", send_sync, "ana"))
        except OutcomeUnknown:
            heard.add("unknown")
        assert len(done) <= 1, f"died at call {at}"
        if not died:
            break
        at += 1

    assert at == 2
    assert heard == {"sent to ana", "unknown"}


# -- settling -------------------------------------------------------------------------------------


async def begin(bucket: Bucket) -> None:
    """As a process that died in the middle of the effect."""
    assert await dies(bucket, "unsent", 1, lambda store: Client(store).once("k", send_sync, "ana"))


@pytest.mark.parametrize("happened", [True, False])
async def test_what_is_unknown_is_settled_by_hand(
    client: Client, bucket: Bucket, happened: bool
) -> None:
    """It took place, with this value; or it did not, and is tried again."""
    await begin(bucket)
    with pytest.raises(OutcomeUnknown, match=r"client\.settle"):
        await client.once("k", send_sync, "bo")

    await client.settle("k", "by phone", happened=happened, by="ana")

    said = await client.once("k", send_sync, "bo")
    assert said == ("by phone" if happened else "sent to bo")
    with pytest.raises(Conflict):
        await client.settle("k", "again")
    with pytest.raises(Conflict):
        await client.settle("never begun", "x")


async def test_keys_are_no_paths(client: Client, bucket: Bucket) -> None:
    """A key stays in its folder, and no key is in another's."""
    assert await client.once("a/000001/begun", send_sync, "x") == "sent to x"
    assert await client.once("a", send_sync, "y") == "sent to y"
    with pytest.raises(InvalidId):
        await client.once("", send_sync, "z")

    made = [name for verb, name in bucket.log if verb == "create"]
    assert all(name.startswith("once/a") and name.count("/") == 3 for name in made)
    assert primitives.effect_begun("a", 1) in made


# -- in steps -------------------------------------------------------------------------------------


@step(name="once-test greet", attempts=1)
async def greet(to: str) -> str:
    return await durable.once(f"greet:{to}", send_sync, to)


@step(name="once-test greet sync", attempts=1)
def greet_sync(to: str) -> str:
    return sync.once(f"greet:{to}", send_sync, to)


@workflow(name="once-test flow")
async def flow(to: str) -> list[str]:
    return [await greet(to), await greet_sync.call(to)]


@workflow(name="once-test sync flow")
def sync_flow(to: str) -> list[str]:
    return [greet_sync(to), greet_sync(to)]


@workflow(name="once-test bare")
async def bare() -> None:
    await durable.once("k", send_sync, "x")


async def test_steps_of_any_run_share_it(bucket: Bucket) -> None:
    """The key is the whole store's, in async and sync steps."""
    async with Client(Store(MemoryBackend(bucket))) as client:
        assert await client.run(flow, "ana") == ["sent to ana"] * 2
        assert await client.run(sync_flow, "ana") == ["sent to ana"] * 2
        assert await client.once("greet:ana", send_sync, "ana") == "sent to ana"
        assert done == ["ana"]
        with pytest.raises(durable.RunFailed, match="outside a step"):
            await client.run(bare)


async def test_misuse() -> None:
    """Outside a step it names the client's word; in async code the sync word is refused."""
    with pytest.raises(NotInWorkflow, match=r"client\.once"):
        await durable.once("k", send_sync, "x")
    with pytest.raises(NotInWorkflow, match=r"await durable\.once"):
        sync.once("k", send_sync, "x")


def test_in_a_thread_of_ones_own() -> None:
    """There is no event loop to ask."""
    with pytest.raises(NotInWorkflow, match="did not start"):
        sync.once("k", send_sync, "x")
