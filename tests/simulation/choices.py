"""Decisions between several things that may happen: `select`, and blocks with a durable timeout.

To import it registers its scenarios.
"""

from __future__ import annotations

from typing import Any

import durable
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.flows import child, flaky, flow, long, work
from tests.simulation.scenarios import cancelled, one, result, scenario, send
from tests.simulation.witness import Witness


@flow("sim.chosen")
async def chosen(w: Witness, rounds: int, seconds: float) -> Any:
    """A step, an event and a deadline, again and again."""
    for i in range(rounds):
        winner, value = await durable.select(
            step=long(f"c{i}", seconds), event=durable.wait_event("go"), late=durable.sleep(2.0)
        )
        w.got({"step": value, "event": f"event {value}", "late": "late"}[winner])
        w.got(await work(f"after{i}"))
    return w.log


@flow("sim.chosen-step")
async def chosen_step(w: Witness, width: int) -> Any:
    """Whichever step is first; a branch with two steps is one of them."""

    async def two(turn: int) -> str:
        await work(f"two{turn}-1")
        return await flaky(f"two{turn}-2", 1)

    for turn in range(width):
        steps = {f"s{i}": work(f"race{turn}-{i}") for i in range(width)}
        w.got((await durable.select(two=two(turn), **steps))[1])
    w.got(await work("last"))
    return w.log


@flow("sim.chosen-child")
async def chosen_child(w: Witness, seconds: float) -> Any:
    started = await child.start("racer")
    winner, value = await durable.select(child=started.result(), late=durable.sleep(seconds))
    w.tell("child", value=value) if winner == "child" else w.got("late")
    w.got(await work("after"))
    return w.log


@flow("sim.timed")
async def timed(w: Witness, seconds: float, hears: bool) -> Any:
    """A block that is cut off in a step, or in a wait for an event."""
    try:
        async with durable.timeout(seconds):
            w.got(await work("before"))
            if hears:
                w.got(f"event {await durable.wait_event('go')}")
            w.got(await long("long", 3.0))
    except TimeoutError:
        w.got("timeout")
    w.got(await work("after"))
    return w.log


async def chosen_with_events(world: World, seconds: float, pauses: list[float]) -> None:
    world.fleet(2, flows.code())
    await world.start(chosen, "run", 3, seconds)
    await send(world, "run", [f"e{i}" for i in range(len(pauses))], pauses)
    await world.ended("run")
    await result(world, "run")


@scenario
async def select_a_step(world: World) -> None:
    await one(world, chosen_step, 2)


@scenario
async def select_event_or_step(world: World) -> None:
    """Each is sent about when a step ends."""
    await chosen_with_events(world, 1.0, [1.2, 1.0])


@scenario
async def select_event_or_deadline(world: World) -> None:
    """Each is sent about when the sleep ends; the steps are too slow."""
    await chosen_with_events(world, 5.0, [2.0, 2.2])


@scenario
async def select_a_child(world: World) -> None:
    """It ends about when the parent has waited long enough."""
    await one(world, chosen_child, 1.0)


@scenario
async def select_a_child_while_parked(world: World) -> None:
    await one(world, chosen_child, 14.0)


@scenario
async def block_in_time(world: World) -> None:
    await one(world, timed, 30.0, False)


@scenario
async def block_cut_off_in_a_step(world: World) -> None:
    await one(world, timed, 2.0, False)


@scenario
async def block_cut_off_while_parked(world: World) -> None:
    await one(world, timed, 15.0, True)


@scenario
async def block_cancelled(world: World) -> None:
    await cancelled(world, timed, 8.0, True, after=3.0)


flows.ORDINARY.append(chosen_step)  # random schedules choose from these
