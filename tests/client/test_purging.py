"""Purging: runs that are over are removed for good, whatever dies meanwhile."""

from __future__ import annotations

import contextlib

import anyio
import msgspec
import pytest

from durable.client import Client, purging
from durable.errors import Conflict, NotFound, RunFailed
from durable.protocol import names, records
from durable.protocol.records import Attention, History, Start
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.memory import Bucket, Call, MemoryBackend
from tests.client import shop
from tests.client.dying import MODES, Mode, dies
from tests.client.shop import checkout, refused

pytestmark = pytest.mark.anyio

DAY = 86_400.0


def _left(bucket: Bucket, run: str) -> set[str]:
    """The names of the objects that belong to the run."""
    part = names.encode_part(run)
    return {n for n in bucket.names.since("") if f"/{part}/" in n or n.endswith(part)}


async def test_a_purged_run_is_gone(client: Client, bucket: Bucket, store: Store) -> None:
    """Nothing but the tombstone is left; to everybody there is no such run."""
    await client.run(checkout.options(id="order-1"), "A-1")
    await _settle(bucket, "order-1")

    removed = await purging.purge(store, "order-1")

    assert removed == 4  # two steps, the result, the history
    assert _left(bucket, "order-1") == {"runs/order-1/start"}
    with pytest.raises(NotFound):
        await client.get("order-1")
    assert [run async for run in client.list()] == []


async def test_a_purged_id_is_free(client: Client, bucket: Bucket, store: Store) -> None:
    """Started again, even with another input, it is a new run that executes everything."""
    await client.run(checkout.options(id="order-1"), "A-1")
    await _settle(bucket, "order-1")
    await purging.purge(store, "order-1")
    shop.ran.clear()

    assert await client.run(checkout.options(id="order-1"), "B-2") == ("receipt B-2", 3)
    assert shop.ran == ["charge B-2", "deliver B-2"]


async def test_a_purged_id_is_started_and_left_to_a_worker(
    client: Client, bucket: Bucket, store: Store
) -> None:
    """`client.start` on a tombstone makes the new run known to the workers."""
    await client.run(checkout.options(id="order-1"), "A-1")
    await _settle(bucket, "order-1")
    await purging.purge(store, "order-1")

    handle = await client.start(checkout.options(id="order-1"), "B-2")

    async with anyio.create_task_group() as tasks:
        worker = Worker(store, {checkout.name: checkout.definition})
        await tasks.start(worker.run)
        assert await handle.result(timeout=10) == ("receipt B-2", 3)
        worker.stop()


async def test_what_is_not_over_is_kept(client: Client, store: Store) -> None:
    """A waiting run is refused without force; an unknown one is not found."""
    await client.start(checkout.options(id="order-1"), "A-1")

    with pytest.raises(Conflict, match="is not over: waiting"):
        await purging.purge(store, "order-1")
    with pytest.raises(NotFound):
        await purging.purge(store, "nobody")


async def test_a_late_wake_of_a_purged_run_is_cleared_away(
    client: Client, bucket: Bucket, store: Store
) -> None:
    """A worker that finds its marker executes nothing and deletes it."""
    await client.run(checkout.options(id="order-1"), "A-1")
    await _settle(bucket, "order-1")
    late = await client.start(checkout.options(id="order-1"), "A-1")  # its marker is made anew
    await purging.purge(store, "order-1")
    shop.ran.clear()

    async with anyio.create_task_group() as tasks:
        worker = Worker(store, {checkout.name: checkout.definition})
        await tasks.start(worker.run)
        await _settle(bucket, late.id)
        worker.stop()

    assert shop.ran == []
    assert _left(bucket, "order-1") == {"runs/order-1/start"}


async def test_a_late_flag_of_a_purged_run_is_cleared_away(bucket: Bucket, store: Store) -> None:
    """A worker flagged the run while it was purged: other code looks once, and takes it down."""
    async with Client(store) as client:
        await client.run(checkout.options(id="order-1"), "A-1")
        await _settle(bucket, "order-1")
        await purging.purge(store, "order-1")
    flag = Attention("order-1", "gone", checkout.name, "drift", "other code", "nonce", 0.0)
    await store.create(names.attention("default", "order-1"), records.encode(flag), nonce="nonce")

    await Worker(store, {checkout.name: checkout.definition}).run(until_idle=True)

    assert _left(bucket, "order-1") == {"runs/order-1/start"}


@pytest.mark.parametrize("mode", MODES)
async def test_purging_survives_a_death_at_every_call(mode: Mode) -> None:
    """Every read shows the whole run or none; purging again finishes it, and nothing is left."""
    deaths = 0
    while True:
        bucket = Bucket()
        store = Store(MemoryBackend(bucket))
        async with Client(store) as client:
            await client.run(checkout.options(id="order-1"), "A-1")
            await _settle(bucket, "order-1")
            died = await dies(bucket, mode, deaths, lambda s: purging.purge(s, "order-1"))
            with contextlib.suppress(NotFound):
                assert await (await client.get("order-1")).result(timeout=0) == ("receipt A-1", 3)
            if not died:
                break
            deaths += 1
            with contextlib.suppress(NotFound):  # the death was behind the last write
                await purging.purge(store, "order-1")
            assert _left(bucket, "order-1") == {"runs/order-1/start"}
    assert deaths >= 8


@pytest.mark.parametrize(("verb", "nth"), [("purge", 1), ("purge", 2), ("collect", 1)])
async def test_an_id_that_is_used_again_meanwhile_keeps_what_is_new(verb: str, nth: int) -> None:
    """Whoever purges is slow, and the run is started anew while it lists what is to go."""
    bucket = Bucket()
    store = Store(MemoryBackend(bucket))
    async with Client(store) as client:
        await client.run(checkout.options(id="x"), "A-1")
        await _settle(bucket, "x")
    old = msgspec.json.decode(bucket.read("runs/x/start").body, type=Start)  # type: ignore[union-attr]  # it is there
    new = msgspec.structs.replace(old, instance="fresh", nonce="fresh")
    step = names.step("x", "fresh", "a.1")

    def starts_anew(call: Call) -> None:
        if (call.verb, call.name, call.nth) != ("list", "runs/x/", nth):
            return
        stored = bucket.read("runs/x/start")
        assert stored is not None
        bucket.replace(stored.name, stored.generation, records.encode(new), {}, True)
        bucket.create(step, b"{}", {}, True)

    slow = Store(MemoryBackend(bucket, faults=starts_anew))
    await (purging.purge(slow, "x") if verb == "purge" else _collect(slow))

    left = {n for n in _left(bucket, "x") if not n.startswith("live/")}
    assert left == {"runs/x/start", step}


# -- all that are old ------------------------------------------------------------------------------


async def test_old_runs_are_found_by_their_end(client: Client, store: Store) -> None:
    """Only those that ended before, oldest first."""
    for run in ("a", "b"):
        await client.run(checkout.options(id=run), "A-1")

    assert [e.run async for e in purging.expired(store, 0)] == ["a", "b"]
    assert [e async for e in purging.expired(store, DAY)] == []


async def test_collecting_keeps_what_was_restarted(
    client: Client, bucket: Bucket, store: Store
) -> None:
    """Of a run that goes on under a new instance only the old instance is removed."""
    with pytest.raises(RunFailed):
        await client.run(refused.options(id="order-1"), "A-1")
    await _settle(bucket, "order-1")
    (old,) = [e async for e in purging.expired(store, 0)]
    handle = await client.restart("order-1")

    await purging.purge_ended(store, old)

    assert not [n for n in _left(bucket, "order-1") if f"/{old.instance}/" in n]
    assert str(await handle.status()) == "waiting"
    with pytest.raises(RunFailed):
        await client.run(refused.options(id="order-1"), "A-1")


@pytest.mark.parametrize("mode", MODES)
async def test_collecting_survives_a_death_at_every_call(mode: Mode) -> None:
    """Whoever collects again finds the rest by the history."""
    deaths = 0
    while True:
        bucket = Bucket()
        store = Store(MemoryBackend(bucket))
        async with Client(store) as client:
            for run in ("a", "b"):
                await client.run(checkout.options(id=run), "A-1")
                await _settle(bucket, run)
        died = await dies(bucket, mode, deaths, _collect)
        await _collect(store)
        assert {n for n in bucket.names.since("") if n.startswith(("runs/", "history/"))} == {
            "runs/a/start", "runs/b/start",
        }  # fmt: skip
        if not died:
            break
        deaths += 1
    assert deaths >= 16


async def _collect(store: Store) -> None:
    found: list[History] = [entry async for entry in purging.expired(store, 0)]
    for entry in found:
        await purging.purge_ended(store, entry)


async def _settle(bucket: Bucket, run: str) -> None:
    """The marker of a run that is over goes in the background."""
    while any(n.startswith("live/") and n.endswith(run) for n in bucket.names.since("live/")):
        await anyio.lowlevel.checkpoint()
