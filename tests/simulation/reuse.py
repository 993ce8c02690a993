"""Ids that are used again while something of the old instance is still under way.

To import it registers its scenarios.
"""

from __future__ import annotations

from durable.client import Client
from durable.client.purging import purge
from durable.errors import NotFound
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.late import late
from tests.simulation.scenarios import scenario, send
from tests.virtual_time import virtual_seconds


async def purge_and_start_again(world: World) -> None:
    async def talk(client: Client) -> int:
        return await purge(client.store, "run")

    for _ in range(20):
        reply = await world.client("purge", talk, "run")
        if reply.value is not None or isinstance(reply.error, NotFound):
            break
        await virtual_seconds(1)
    await world.start(flows.sequence, "run", 3)
    await world.ended("run")


@scenario
async def late_record_of_a_purged_run(world: World) -> None:
    """The owner dies while it records; the next ends the run, whose id is used again."""
    world.expect("run", "replaced")
    late(world, lambda s: "/steps/" in s.name and s.verb == "create", "late_crash", 4.0)
    world.fleet(2, flows.code())
    await world.start(flows.sequence, "run", 2)
    await world.ended("run")
    await purge_and_start_again(world)


@scenario
async def late_result_of_a_purged_run(world: World) -> None:
    world.expect("run", "replaced")
    late(world, lambda s: s.name.endswith("/result") and s.verb == "create", "late_crash", 4.0)
    world.fleet(2, flows.code())
    await world.start(flows.sequence, "run", 1)
    await world.ended("run")
    await purge_and_start_again(world)


@scenario
async def late_marker_of_a_purged_run(world: World) -> None:
    """It asks for the old instance, with the old input."""
    world.expect("run", "replaced")
    late(world, lambda s: s.name.startswith("live/") and s.who.startswith("c"), "late", 4.0)
    world.fleet(1, flows.code())
    await world.start(flows.sequence, "run", 1)
    await world.ended("run")
    await purge_and_start_again(world)


@scenario
async def late_event_for_a_purged_run(world: World) -> None:
    """What was sent to the old instance does not reach the new one."""
    world.expect("run", "replaced")
    late(world, lambda s: "/events/" in s.name and s.verb == "create", "late", 4.0)
    world.fleet(1, flows.code())
    await world.start(flows.listener, "run", 1, 3.0)
    await send(world, "run", ["e0"], [0.5])
    await world.ended("run")
    await purge_and_start_again(world)
