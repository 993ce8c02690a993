"""What runs share in a random schedule: some of everything, at moments of no meaning."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from durable import every
from durable.client import Client
from durable.errors import SingletonTaken
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.coordination import flows as shared
from tests.simulation.coordination.asking import ask, unfinished
from tests.simulation.coordination.effects import keyed, produce
from tests.simulation.coordination.held import hold
from tests.simulation.coordination.schedules import all_over, change, scheduled
from tests.simulation.scenarios import cancel
from tests.virtual_time import virtual_seconds

QUEUES = ("default", "narrow", shared.WIDE.name, shared.KEPT.name, shared.SLOWLY.name,
          shared.HELD.name)  # fmt: skip
SCHEDULED = "chance"

Part = Coroutine[Any, Any, object]


def parts(world: World) -> list[Part]:
    """What clients do in this world, beside what the others do."""
    chance = world.chance
    kinds = chance.sample(sorted(PARTS), chance.randint(1, 3))
    found = [PARTS[kind](world, f"{kind}{i}") for kind in kinds for i in range(3)]
    if chance.random() < 0.4:
        found.append(_schedule(world))
    return found


async def ended(world: World) -> None:
    """No tick is to come any more, and everything that was started is over."""
    if any(name == f"schedules/{SCHEDULED}" for name in world.there()):
        await change(world, SCHEDULED, "pause")
        await world.until(lambda: all_over(world, SCHEDULED), "the last runs of the schedule")
    await world.until(lambda: not unfinished(world), "all runs to end")


async def _soon(world: World) -> None:
    await virtual_seconds(world.chance.choice([0.0, world.chance.uniform(0, 10)]))


def _nap(world: World) -> float:
    return world.chance.choice([0.0, 0.0, 2.0, 13.0])


async def _single(world: World, run: str) -> None:
    """One of those that want a lock; some of them are cancelled."""
    await _soon(world)
    workflow: Any = world.chance.choice([*shared.SINGLE, shared.expiring])
    key = world.chance.choice(["key", "key", "key", "other"])
    # A client may be told that another run goes on, so that there is none of its own.
    told = await _started(world, workflow, run, key, world.chance.randint(1, 3), _nap(world))
    if told and world.chance.random() < 0.2:
        await virtual_seconds(world.chance.uniform(0, 6))
        await cancel(world, told)


async def _started(world: World, workflow: Any, run: str, *args: Any) -> str:
    async def talk(client: Client) -> list[str]:
        try:
            handle = await client.start(workflow.options(id=run), *args)
        except SingletonTaken:
            return ["", ""]
        return [handle.id, handle.instance]

    told = await ask(world, "join", talk)
    return str(told[0]) if told else ""


async def _queued(world: World, run: str) -> None:
    await _soon(world)
    workflow: Any = world.chance.choice([shared.wide, shared.wide, shared.kept, shared.slowly])
    priority = world.chance.choice([0, 0, -1])
    await world.start(workflow, run, world.chance.randint(1, 2), _nap(world), priority=priority)
    if world.chance.random() < 0.15:
        await virtual_seconds(world.chance.uniform(0, 6))
        await cancel(world, run)


async def _narrow(world: World, run: str) -> None:
    await _soon(world)
    if world.chance.random() < 0.5:
        await world.start(flows.in_turn, run, world.chance.randint(1, 3))
    else:
        await world.start(shared.dozing, run, world.chance.choice([1.0, 8.0, 20.0]))


async def _keyed(world: World, run: str) -> None:
    await _soon(world)
    await keyed(world, run, "key", world.chance.randint(1, 2))


async def _mailing(world: World, run: str) -> None:
    await _soon(world)
    await world.start(shared.mailing, run, world.chance.choice(["ana", "ben"]))


async def _held(world: World, run: str) -> None:
    await _soon(world)
    await hold(world, "chance", int(run[-1]) + 1)


async def _produced(world: World, run: str) -> None:
    await _soon(world)
    await produce(world, world.chance.choice(["a", "b"]), int(run[-1]) + 1)
    await world.start(shared.dispatch, run, 2)


async def _schedule(world: World) -> None:
    seconds = world.chance.choice([5.0, 8.0, 15.0])
    overlap: Any = world.chance.choice(["skip", "queue", "cancel-old", "allow"])
    busy, nap = world.chance.choice([0.5, 6.0, 12.0]), world.chance.choice([0.0, 0.0, 13.0])
    await scheduled(world, SCHEDULED, every(seconds, overlap=overlap), busy, nap)
    await virtual_seconds(world.chance.uniform(10, 30))


PARTS: dict[str, Callable[[World, str], Part]] = {
    "single": _single, "queued": _queued, "narrow": _narrow, "keyed": _keyed,
    "mailing": _mailing, "produced": _produced, "held": _held,
}  # fmt: skip
