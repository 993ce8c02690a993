"""A simulation that does not come to its end says so in its history."""

from __future__ import annotations

import asyncio

from durable.testing.simulation.machines import Machine
from durable.testing.simulation.world import World, simulate
from tests.simulation.checker import check
from tests.virtual_time import virtual_seconds


def test_what_never_happens_is_told() -> None:
    """When every task waits and no timer is set, that is a violation, not a crash."""

    async def waits(world: World) -> None:
        await asyncio.Event().wait()

    (violation,) = check(simulate(1, waits).history.events)

    assert violation.rule == "nothing_broke"
    assert "every task waits" in violation.text


def test_a_blocked_loop_is_told_when_it_runs_again() -> None:
    """What another thread hands to an event loop waits there while that is blocked."""
    heard: list[tuple[float, str]] = []

    async def scenario(world: World) -> None:
        machine: Machine = world.machine("w")
        loop = world.loop

        async def owner() -> None:
            wake = asyncio.get_running_loop().call_soon_threadsafe
            loop.begin(machine.lease, tells(wake))
            machine.block(5.0)

        async def tells(wake: object) -> None:
            assert callable(wake)
            wake(lambda: heard.append((loop.now, loop._running_strand.name)))

        await machine.run(owner())
        await virtual_seconds(10)

    simulate(1, scenario)

    ((at, strand),) = heard
    assert at >= 5.0
    assert strand.endswith("/main")
