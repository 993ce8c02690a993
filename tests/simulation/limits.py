"""What takes too long: attempts of steps that time out, and runs that are not over in time.

To import it registers its scenarios.
"""

from __future__ import annotations

from typing import Any

import durable
from durable.testing.simulation.world import World
from tests.simulation.flows import QUICK, book, flow, long, work
from tests.simulation.scenarios import one, scenario
from tests.simulation.witness import Body, Witness
from tests.virtual_time import virtual_seconds


@durable.step(name="sim.hasty", timeout=1.5, retry=QUICK)
async def hasty(slot: str, late: int) -> str:
    """Takes too long for so many attempts."""
    body = Body(slot)
    await virtual_seconds(30.0 if durable.current().attempt <= late else body.seconds)
    return body.value()


@flow("sim.late-steps")
async def late_steps(w: Witness, width: int) -> Any:
    """One after the other, then side by side; the last is never in time."""
    for i in range(width):
        w.got(await hasty(f"h{i}", 1))
    for value in await durable.gather(hasty("g0", 1), work("g1")):
        w.got(value)
    try:
        w.got(await hasty("never", 3))
    except durable.errors.StepTimeout:
        w.got("timeout")
    return w.log


@flow("sim.overdue", timeout=9.0)
async def overdue(w: Witness, width: int) -> Any:
    for i in range(width):
        w.got(await book(f"book{i}"))
    w.got(await long("long", 60.0))
    return w.log


@flow("sim.overdue-parked", timeout=25.0)
async def overdue_parked(w: Witness, width: int) -> Any:
    for i in range(width):
        w.got(await book(f"book{i}"))
    await durable.sleep(60.0)
    w.got(await work("after"))
    return w.log


@flow("sim.blocks")
async def blocks(w: Witness, limit: float, naps: list[float]) -> Any:
    """Side by side: what one comes to is known long before all have ended."""

    async def block(seconds: float) -> str:
        try:
            async with durable.timeout(limit):
                await durable.sleep(seconds)
        except TimeoutError:
            return w.got(f"{seconds} is late")
        return w.got(f"{seconds} is in time")

    await durable.gather(*[block(seconds) for seconds in naps])
    w.got(await work("after"))
    return w.log


@scenario
async def blocks_while_parked(world: World) -> None:
    """Whoever wakes the run finds that several waits are over."""
    await one(world, blocks, 30.0, [40.0, 24.0, 12.0])


@scenario
async def step_timeouts(world: World) -> None:
    await one(world, late_steps, 2)


@scenario
async def overdue_in_a_body(world: World) -> None:
    """It is cut off and undone at its deadline, whoever carries it."""
    await one(world, overdue, 2)


@scenario
async def overdue_while_parked(world: World) -> None:
    """Somebody has to come to end it."""
    await one(world, overdue_parked, 2)
