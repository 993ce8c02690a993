"""Scenarios of starts that are held back until they have been quiet."""

from __future__ import annotations

import asyncio

from durable.client import Client
from durable.testing.simulation.faults import Fault
from durable.testing.simulation.network import Sent
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.coordination import flows as shared
from tests.simulation.coordination.asking import ask, unfinished
from tests.simulation.scenarios import befalls_first, scenario
from tests.virtual_time import virtual_seconds

HOURS = 3600.0


async def hold(world: World, key: str, number: int, at: float = 0.0) -> None:
    """A producer whose start is held back; it asks until it is told which run that is."""

    async def talk(client: Client) -> list[object]:
        options = shared.held.options(id=f"{key}{number}", debounce_key=key)
        handle = await client.start(options, key, number)
        return [key, number, handle.id, handle.instance]

    await virtual_seconds(at)
    await ask(world, f"held {key} {number}", talk)


async def _held(world: World, *moments: float, key: str = "key") -> None:
    """So many producers, each at its time, until all that they asked for is over."""
    producers = [
        world.ask(hold(world, key, number, at)) for number, at in enumerate(moments, start=1)
    ]
    await asyncio.gather(*producers)
    await world.until(lambda: not unfinished(world), "the runs that were held back to end")


def _serving(world: World) -> None:
    world.fleet(2, flows.code(), queues=("held",))


@scenario
async def held_back(world: World) -> None:
    """Three start one after the other, two at once; a sixth long after."""
    _serving(world)
    await _held(world, 0.0, 1.5, 3.0, 4.5, 4.5, 30.0)


@scenario
async def held_back_by_a_busy_key(world: World) -> None:
    """They are never quiet: the first run begins all the same, and then a second one."""
    _serving(world)
    await _held(world, *(3.0 * i for i in range(7)))


@scenario
async def held_back_under_wrong_clocks(world: World) -> None:
    """The producers' wall clocks are hours wrong, one way and the other."""
    world.skew = 48 * HOURS
    _serving(world)
    await _held(world, 0.0, 1.0, 2.0)
    await _held(world, 0.0, 0.0, key="other")


@scenario
async def held_back_until_just_now(world: World) -> None:
    """A start is swapped in while a worker wakes the run, takes it and closes it."""
    others, late = world.network.plan, list[asyncio.Task[None]]()

    def plan(sent: Sent) -> Fault | None:
        wakes = sent.who.startswith("w") and sent.verb == "create"
        key = sent.name.rpartition("-")[2].removesuffix("1")
        if wakes and sent.name.startswith("live/held/") and key in waiting:
            waiting.remove(key)
            late.append(world.ask(hold(world, key, 2, world.chance.uniform(0.0, 0.4))))
        return others(sent)

    world.network.plan = plan
    waiting = {f"key{letter}" for letter in "abcdef"}
    _serving(world)
    keys = sorted(waiting)
    await asyncio.gather(*(_held(world, 1.5 * i, key=key) for i, key in enumerate(keys)))
    await asyncio.gather(*late)
    await world.until(lambda: not unfinished(world), "the runs that were held back to end")


@scenario
async def held_back_by_a_dying_worker(world: World) -> None:
    """Whoever closes the first run dies with the call; starts come in meanwhile."""

    def closes(sent: Sent) -> bool:
        changes = sent.verb == "replace" and sent.name.endswith("/start")
        return changes and sent.who.startswith("w")

    befalls_first(world, closes, "crash_applied")
    _serving(world)
    await _held(world, 0.0, 3.0, 7.1, 7.3, 8.0, 12.0)
