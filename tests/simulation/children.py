"""Bodies in child processes: cancelled, timed out, killed, and outlived by their worker.

To import it registers its scenarios.
"""

from __future__ import annotations

from typing import Any

import durable
from durable import step
from durable.errors import ProcessDied
from durable.testing.simulation import threads
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.flows import QUICK, flow, work
from tests.simulation.scenarios import begun, cancelled, one, scenario
from tests.simulation.witness import Body, Witness
from tests.virtual_time import virtual_seconds


@step(name="sim.crunch", process=True, retry=QUICK)
def crunch(slot: str, seconds: float) -> str:
    body = Body(slot)
    threads.sleep(seconds)
    return body.value()


@step(name="sim.fragile", process=True, attempts=1)
def fragile(slot: str) -> str:
    """Its process dies under it."""
    Body(slot)
    threads.sleep(0.2)
    raise SystemExit(9)


@step(name="sim.endless", process=True, timeout=2.0, attempts=1)
def endless(slot: str) -> str:
    """Longer than it may take: its process is killed."""
    body = Body(slot)
    threads.sleep(10.0)
    return body.value()


@flow("sim.crunching")
async def crunching(w: Witness, width: int) -> Any:
    async def branch(i: int) -> None:
        w.got(await crunch.call(f"c{i}", 0.5 * i))
        w.got(await work(f"then{i}"))

    await durable.gather(*[branch(i) for i in range(width)])
    return w.log


@flow("sim.crunching-long")
async def crunching_long(w: Witness, seconds: float) -> Any:
    w.got(await work("before"))
    w.got(await crunch.call("long", seconds))
    w.got(await work("after"))
    return w.log


@flow("sim.losing")
async def losing(w: Witness, width: int) -> Any:
    for i in range(width):
        for call in (fragile.call(f"f{i}"), endless.call(f"e{i}")):
            try:
                w.got(await call)
            except ProcessDied:
                w.got("died")
            except TimeoutError:
                w.got("timeout")
        w.got(await work(f"after{i}"))
    return w.log


@scenario
async def process_steps(world: World) -> None:
    await one(world, crunching, 3)


@scenario
async def process_steps_that_fail(world: World) -> None:
    """One loses its process, one is killed because it takes too long."""
    await one(world, losing, 1)


@scenario
async def process_step_cancelled(world: World) -> None:
    await cancelled(world, crunching_long, 8.0, after=3.0)


@scenario
async def process_step_of_a_zombie(world: World) -> None:
    first = world.worker(flows.code())
    await world.start(crunching_long, "run", 3.0)
    await begun(world, first, "long")
    first.machine.stop(30.0)
    world.fleet(2, flows.code())
    await world.ended("run")
    await virtual_seconds(20)


@scenario
async def process_step_drained(world: World) -> None:
    """SIGTERM while a child is at work for longer than the grace: it is killed."""
    first = world.worker(flows.code())
    await world.start(crunching_long, "run", 8.0)
    await begun(world, first, "long")
    world.fleet(1, flows.code())
    world.terminate(first)
    await world.ended("run")
