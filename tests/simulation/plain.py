"""Workflows and steps that are ordinary functions: they run in threads, which take turns here.

To import it registers its scenarios.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import durable
from durable import Fatal, step, sync, workflow
from durable.decorators import WorkflowFunction
from durable.testing.simulation import threads
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.flows import QUICK
from tests.simulation.scenarios import begun, cancelled, heard, one, scenario
from tests.simulation.witness import Body, Witness
from tests.virtual_time import virtual_seconds


@step(name="sim.drudge", retry=QUICK)
def drudge(slot: str) -> str:
    body = Body(slot)
    threads.sleep(body.seconds)
    return body.value()


@step(name="sim.drudge-long")
def drudge_long(slot: str, seconds: float) -> str:
    """Longer than a lease, in a thread that does not hear of cancellations."""
    body = Body(slot)
    threads.sleep(seconds)
    return body.value()


@step(name="sim.balky", retry=QUICK)
def balky(slot: str, failures: int) -> str:
    """Succeeds after so many failed attempts."""
    body = Body(slot)
    threads.sleep(body.seconds)
    if durable.current().attempt <= failures:
        raise body.error()
    return body.value()


@step(name="sim.broken")
def broken(slot: str) -> str:
    raise Body(slot).error(Fatal)


def plain_flow(name: str) -> Callable[[Callable[..., Any]], WorkflowFunction[..., Any]]:
    """As `flow`, of an ordinary function."""

    def decorate(fn: Callable[..., Any]) -> WorkflowFunction[..., Any]:
        def watched(*args: Any) -> Any:
            witness = Witness()
            try:
                return witness.left(fn(witness, *args))
            except Exception as e:
                witness.raised(e)
                raise

        watched.__module__, watched.__qualname__ = fn.__module__, fn.__qualname__
        return workflow(name=name)(watched)

    return decorate


@plain_flow("sim.plainly")
def plainly(w: Witness, width: int) -> Any:
    for i in range(width):
        w.got(drudge(f"p{i}"))
        w.got(balky(f"b{i}", i % 2))
    try:
        w.got(broken("broken"))
    except Fatal as e:
        w.got(f"! {e}")
    for value in sync.gather(drudge.call("g1"), flows.work.call("g2"), drudge.call("g3")):
        w.got(value)
    return w.log


@plain_flow("sim.plain-branches")
def plain_branches(w: Witness, width: int) -> Any:
    """Each item has a thread of its own."""

    def item(i: int) -> None:
        w.got(drudge(f"m{i}-1"))
        w.got(drudge(f"m{i}-2"))

    sync.map(item, range(width), limit=2)
    w.got(drudge("last"))
    return w.log


@plain_flow("sim.plain-sleeper")
def plain_sleeper(w: Witness, seconds: float) -> Any:
    w.got(drudge("before"))
    w.tell("sleeps", name="sleep.1", seconds=seconds)
    sync.sleep(seconds)
    w.tell("slept", name="sleep.1")
    w.got(drudge("after"))
    return w.log


@plain_flow("sim.plain-listener")
def plain_listener(w: Witness, events: int, timeout: float | None) -> Any:
    for i in range(events):
        try:
            w.got(f"event {sync.wait_event('go', timeout=timeout)}")
        except TimeoutError:
            w.got("timeout")
        w.got(drudge(f"after{i}"))
    return w.log


@plain_flow("sim.plain-slow")
def plain_slow(w: Witness, seconds: float) -> Any:
    w.got(drudge("before"))
    w.got(drudge_long("long", seconds))
    w.got(drudge("after"))
    return w.log


flows.ORDINARY += [plainly, plain_branches]  # random schedules choose from these


@scenario
async def sync_code(world: World) -> None:
    await one(world, plainly, 2)


@scenario
async def sync_branches(world: World) -> None:
    await one(world, plain_branches, 3)


@scenario
async def sync_parked(world: World) -> None:
    """The thread of a run that is parked is unwound; another goes on later."""
    await one(world, plain_sleeper, 25.0)


@scenario
async def sync_events(world: World) -> None:
    await heard(world, plain_listener, 6.0, [0.0, 7.0])


@scenario
async def sync_cancelled(world: World) -> None:
    """In a body that goes on in its thread, for nobody."""
    await cancelled(world, plain_slow, 6.0, after=3.0)


@scenario
async def sync_zombie(world: World) -> None:
    """A worker is stopped while a thread of its is in a body, and wakes after a takeover."""
    first = world.worker(flows.code())
    await world.start(plain_slow, "run", 3.0)
    await begun(world, first, "long")
    first.machine.stop(30.0)
    world.fleet(2, flows.code())
    await world.ended("run")
    await virtual_seconds(20)


@scenario
async def sync_drained(world: World) -> None:
    """SIGTERM while a thread is in a body that outlasts the grace."""
    first = world.worker(flows.code())
    await world.start(plain_slow, "run", 8.0)
    await begun(world, first, "long")
    world.fleet(1, flows.code())
    world.terminate(first)
    await world.ended("run")
