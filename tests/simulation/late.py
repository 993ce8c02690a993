"""Calls of a dead owner that land while the next owner is at the same.

To import it registers its scenarios.
"""

from __future__ import annotations

from collections.abc import Callable

from durable.testing.simulation.faults import Fault
from durable.testing.simulation.network import Sent
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.scenarios import befalls_first, scenario
from tests.virtual_time import virtual_seconds


def late(world: World, which: Callable[[Sent], bool], fault: Fault, ttls: float) -> None:
    """The first such call lands so much later, whatever else goes wrong."""
    befalls_first(world, which, fault)
    world.network.late_leases = (ttls,)


def _records_tardily(sent: Sent) -> bool:
    return "/steps/sim%2Etardy" in sent.name and sent.verb == "create"


@scenario
async def late_record(world: World) -> None:
    """A dead owner's record lands after the next has recorded and handed over others.

    The next one dies, too, so that a third replays what both have left.
    """
    late(world, _records_tardily, "late_crash", 2.5)
    world.fleet(2, flows.code())
    await world.start(flows.latecomer, "run", 8.0)
    await world.until(lambda: handed(world, "long"), "the second owner to be handed something")
    await virtual_seconds(12.0)
    for member in world.alive:
        if member.carries:
            member.machine.kill()
    await world.ended("run")


@scenario
async def late_record_first(world: World) -> None:
    """A dead owner's record lands before the next has recorded the same: that one has lost."""
    late(world, _records_tardily, "late_crash", 2.5)
    world.fleet(2, flows.code())
    await world.start(flows.latecomer, "run", 8.0)
    await world.ended("run")


@scenario
async def late_result(world: World) -> None:
    """A dead owner's result lands while the next still runs the code after the last step."""
    late(world, lambda s: s.name.endswith("/result") and s.verb == "create", "late_crash", 2.5)
    world.fleet(2, flows.code())
    await world.start(flows.pensive, "run", 25.0)
    await world.ended("run")


def handed(world: World, slot: str) -> bool:
    received = (e for e in world.history.events if e.kind == "received")
    return any(str(e.facts["what"]).startswith(f"{slot}|") for e in received) or world.result("run")
