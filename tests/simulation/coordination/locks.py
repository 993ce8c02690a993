"""Scenarios of singletons: one run of a key at a time, whoever dies."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from durable.client import Client
from durable.errors import SingletonTaken
from durable.protocol import names
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.coordination import flows as shared
from tests.simulation.coordination.asking import BETWEEN, ask, one_by_one
from tests.simulation.scenarios import begun, cancel, result, scenario
from tests.virtual_time import virtual_seconds


async def contended(world: World, workflow: Any, *, holder: Any = shared.waiting) -> None:
    """One run has the lock for a while; two others want it, a third another lock."""
    world.fleet(2, flows.code())
    await world.start(holder, "holder", "key", 4)
    await world.until(lambda: holds(world, "key", "holder"), "the lock to be held")
    starts = [(workflow, f"other{i}", ("key", 1)) for i in range(2)]
    runs = await one_by_one(world, *starts, (workflow, "apart", ("elsewhere", 1)))
    await world.ended("holder", *runs)
    await result(world, "other1")


async def crowd(world: World, workflow: Any) -> None:
    """Three clients start at once: each finds the lock free, and a run finds it held or not.

    A fourth comes when one holds it, and is told at once.
    """
    world.fleet(2, flows.code())
    starts = [world.ask(start_or_join(world, workflow, f"run{i}")) for i in range(3)]
    told = await asyncio.gather(*starts)
    await virtual_seconds(BETWEEN)
    told.append(await start_or_join(world, workflow, "late"))
    # Of a start that raised nothing is promised: nobody may ever hear of its run.
    await world.ended(*filter(None, told))


async def start_or_join(world: World, workflow: Any, run: str) -> str:
    """A client that is told which run is its own; empty if it is told of none."""

    async def talk(client: Client) -> list[str]:
        try:
            handle = await client.start(workflow.options(id=run), "key", 2)
        except SingletonTaken:
            return ["", ""]
        return [handle.id, handle.instance]

    told = await ask(world, "join", talk)
    return told[0] if told else ""


def holds(world: World, key: str, run: str) -> bool:
    """Whether the lock names the run, or the run is over by now."""
    there = world.bucket.peek(names.lock(key))
    return world.result(run) or (
        there is not None and json.loads(there.body or b"{}")["run"] == run
    )


@scenario
async def lock_skips(world: World) -> None:
    await crowd(world, shared.skipping)


@scenario
async def lock_raises(world: World) -> None:
    await crowd(world, shared.raising)


@scenario
async def lock_joins(world: World) -> None:
    await crowd(world, shared.joining)


@scenario
async def lock_is_waited_for(world: World) -> None:
    await contended(world, shared.waiting)


@scenario
async def lock_has_a_line(world: World) -> None:
    await contended(world, shared.queueing)


@scenario
async def lock_is_replaced(world: World) -> None:
    """The holder is cancelled, and who waits ahead."""
    await contended(world, shared.replacing)


@scenario
async def lock_is_waited_for_in_vain(world: World) -> None:
    """One gives up after so long, one after so many attempts."""
    world.fleet(2, flows.code())
    await world.start(shared.waiting, "holder", "key", 1, 20.0)
    await world.until(lambda: holds(world, "key", "holder"), "the lock to be held")
    runs = await one_by_one(
        world, (shared.impatient, "other", ("key", 1)), (shared.asking, "another", ("key", 1))
    )
    await world.ended("holder", *runs)


@scenario
async def lock_is_asked_for_once(world: World) -> None:
    """One gives up at its first look, others stand in line before and behind it."""
    world.fleet(2, flows.code())
    await world.start(shared.waiting, "holder", "key", 4)
    await world.until(lambda: holds(world, "key", "holder"), "the lock to be held")
    runs = await one_by_one(
        world,
        (shared.asking_once, "first", ("key", 1)),
        (shared.queueing, "next", ("key", 3)),
        (shared.asking_once, "second", ("key", 1)),
        (shared.queueing, "last", ("key", 1)),
    )
    await world.ended("holder", *runs)


@scenario
async def lock_expires(world: World) -> None:
    """Its holder goes on beside the next after the ttl."""
    world.fleet(2, flows.code())
    runs = await one_by_one(
        world, (shared.expiring, "holder", ("key", 1, 25.0)), (shared.expiring, "next", ("key", 1))
    )
    await world.ended(*runs)


@scenario
async def lock_of_a_parked_run(world: World) -> None:
    """The holder sleeps without a worker; the lock is not free for that."""
    world.fleet(2, flows.code())
    runs = await one_by_one(
        world, (shared.queueing, "holder", ("key", 1, 14.0)), (shared.queueing, "next", ("key", 1))
    )
    await world.ended(*runs)


@scenario
async def lock_outlives_its_worker(world: World) -> None:
    """The worker dies in the holder's body while two wait, parked."""
    first = world.worker(flows.code())
    await world.start(shared.queueing, "holder", "key", 5)
    await begun(world, first, "key-queueing-0-of-holder")
    runs = await one_by_one(
        world, (shared.queueing, "next", ("key", 1)), (shared.waiting, "last", ("key", 1))
    )
    world.fleet(2, flows.code())
    first.machine.kill()
    await world.ended("holder", *runs)


@scenario
async def lock_of_a_zombie(world: World) -> None:
    """The holder's worker is stopped, its run ends elsewhere, another has the lock."""
    first = world.worker(flows.code())
    await world.start(shared.queueing, "holder", "key", 2)
    await begun(world, first, "key-queueing-0-of-holder")
    first.machine.stop(20.0)
    world.fleet(2, flows.code())
    await world.start(shared.queueing, "next", "key", 6)
    await world.ended("holder", "next")
    await virtual_seconds(10)


@scenario
async def lock_of_a_cancelled_waiter(world: World) -> None:
    """The first in line is cancelled while it waits: the second is next."""
    world.fleet(2, flows.code())
    runs = await one_by_one(
        world,
        (shared.queueing, "holder", ("key", 4)),
        (shared.queueing, "leaver", ("key", 1)),
        (shared.queueing, "last", ("key", 1)),
    )
    await cancel(world, "leaver")
    await world.ended(*runs)


@scenario
async def lock_released_by_force(world: World) -> None:
    """A human frees it while two wait, parked: the holder is cancelled."""
    world.fleet(2, flows.code())
    runs = await one_by_one(
        world,
        (shared.queueing, "holder", ("key", 2, 30.0)),
        (shared.queueing, "next", ("key", 1)),
        (shared.queueing, "last", ("key", 1)),
    )

    async def talk(client: Client) -> str:
        await client.locks.release("key", force=True)
        return "released"

    await ask(world, "release", talk)
    await world.ended(*runs)
