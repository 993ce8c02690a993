"""Workers on one host: the lock file of a process proves its death, and nothing else does.

To import it registers its scenarios. The lock files are real ones; the kernel's part, to free
them when a process ends, is the simulation's.
"""

from __future__ import annotations

from durable.testing.simulation.world import Member, World
from tests.simulation import flows
from tests.simulation.scenarios import begun, scenario
from tests.virtual_time import virtual_seconds


async def beside(world: World, neighbours: str) -> Member:
    """A worker on one host in a body, and two on the other that have settled in."""
    first = world.worker(flows.code(), runtime_folder=world.host("alpha"))
    world.fleet(2, flows.code(), runtime_folder=world.host(neighbours))
    await world.start(flows.slow, "run", 9.0)
    await begun(world, first, "long")
    await virtual_seconds(4)
    return first


def holder(world: World) -> Member | None:
    """Whoever carries the run."""
    return next((m for m in world.alive if m.carries), None)


@scenario
async def death_on_one_host(world: World) -> None:
    """Whoever carries the run dies: a neighbour goes on with it at once."""
    await beside(world, "alpha")
    if (member := holder(world)) is not None:
        member.machine.kill()
    await world.ended("run")


@scenario
async def death_on_another_host(world: World) -> None:
    """Nobody can prove it: the lease runs out."""
    first = await beside(world, "beta")
    first.machine.kill()
    await world.ended("run")


@scenario
async def stopped_is_not_dead(world: World) -> None:
    """A stopped process holds its lock file: its neighbours wait for its lease to run out."""
    await beside(world, "alpha")
    if (member := holder(world)) is not None:
        member.machine.stop(30.0)
    await world.ended("run")
    await virtual_seconds(20)
