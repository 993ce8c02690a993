"""The workflows that are simulated. Each tells a witness what it was handed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

import durable
from durable import Fatal, Queue, gather, step, workflow
from durable.decorators import WorkflowFunction, workflows
from durable.errors import OutcomeUnknown
from durable.protocol.retries import Retry
from durable.testing.simulation.world import who, world
from tests.simulation.witness import Body, Witness
from tests.virtual_time import virtual_seconds

LARGE = 9_000  # characters: too much to be listed with the run
QUICK = Retry(attempts=3, first=0.4)

# -- steps ----------------------------------------------------------------------------------------


@step(name="sim.work", retry=QUICK)
async def work(slot: str, size: int = 0) -> str:
    body = Body(slot)
    await virtual_seconds(body.seconds)
    return body.value(size)


@step(name="sim.toil", retry=QUICK)
def toil(slot: str) -> str:
    return Body(slot).value()


@step(name="sim.flaky", retry=QUICK)
async def flaky(slot: str, failures: int) -> str:
    """Succeeds after so many failed attempts."""
    body = Body(slot)
    await virtual_seconds(body.seconds)
    if durable.current().attempt <= failures:
        raise body.error()
    return body.value()


@step(name="sim.fatal")
async def fatal(slot: str) -> str:
    """Fails once, for good."""
    body = Body(slot)
    await virtual_seconds(body.seconds)
    raise body.error(Fatal)


@step(name="sim.long")
async def long(slot: str, seconds: float) -> str:
    body = Body(slot)
    await virtual_seconds(seconds)
    return body.value()


@step(name="sim.deadly")
async def deadly(slot: str) -> str:
    """Kills its process."""
    Body(slot)
    await virtual_seconds(0.05)
    world().machines[who()].kill()
    await virtual_seconds(1)
    raise AssertionError("the dead go no further")


@step(name="sim.blocking")
async def blocking(slot: str, seconds: float) -> str:
    """Blocks the event loop of its process."""
    body = Body(slot)
    world().machines[who()].block(seconds)
    await anyio.lowlevel.checkpoint()
    return body.value()


@step(name="sim.telling", retry=QUICK)
async def telling(slot: str) -> str:
    """Says how far it is; goes on from there."""
    body = Body(slot)
    done = durable.current().heartbeat_details or 0
    assert isinstance(done, int)
    for part in range(done, 4):
        await virtual_seconds(0.7)
        durable.current().heartbeat(part + 1)
        durable.publish("part", part + 1)
    return body.value()


# -- workflows ------------------------------------------------------------------------------------


def flow(
    name: str, **options: Any
) -> Callable[[Callable[..., Awaitable[Any]]], WorkflowFunction[..., Any]]:
    """A workflow, with these options, whose function is given a witness first."""

    def decorate(fn: Callable[..., Awaitable[Any]]) -> WorkflowFunction[..., Any]:
        async def watched(*args: Any) -> Any:
            witness = Witness()
            try:
                return witness.left(await fn(witness, *args))
            except Exception as e:
                witness.raised(e)
                raise

        watched.__module__, watched.__qualname__ = fn.__module__, fn.__qualname__
        made: WorkflowFunction[..., Any] = workflow(name=name, **options)(watched)
        return made

    return decorate


@flow("sim.sequence")
async def sequence(w: Witness, width: int) -> Any:
    for i in range(width):
        w.got(await work(f"s{i}"))
    w.got(await toil.call("last"))
    return w.log


@flow("sim.retries")
async def retries(w: Witness, width: int) -> Any:
    for i in range(width):
        w.got(await flaky(f"f{i}", i % 3))
    return w.log


@flow("sim.progress")
async def progress(w: Witness, width: int) -> Any:
    for i in range(width):
        durable.publish("progress", i)
        w.got(await telling(f"t{i}"))
    durable.publish("progress", "done")
    return w.log


@flow("sim.caught")
async def caught(w: Witness, width: int) -> Any:
    for i in range(width):
        try:
            w.got(await fatal(f"e{i}"))
        except Fatal as e:
            w.got(f"! {e}")
        w.got(await work(f"instead{i}"))
    return w.log


@flow("sim.doomed")
async def doomed(w: Witness, width: int) -> Any:
    for i in range(width):
        w.got(await work(f"s{i}"))
    try:
        return await fatal("end")
    except Fatal as e:
        w.got(f"! {e}")
        raise


@flow("sim.branches")
async def branches(w: Witness, width: int) -> Any:
    async def branch(i: int) -> None:
        w.got(await work(f"b{i}-1"))
        w.got(await flaky(f"b{i}-2", i % 2))

    await gather(*[branch(i) for i in range(width)])
    for value in await gather(work("g1"), toil.call("g2"), work("g3")):
        w.got(value)
    return w.log


@flow("sim.mapped")
async def mapped(w: Witness, width: int) -> Any:
    async def item(i: int) -> None:
        w.got(await work(f"m{i}-1"))
        w.got(await work(f"m{i}-2"))

    await durable.map(item, range(width), limit=2)
    w.got(await work("last"))
    return w.log


@flow("sim.decided")
async def decided(w: Witness, width: int) -> Any:
    async def branch(i: int) -> None:
        for j in range(2):
            w.got(await work(f"b{i}-{j}"))

    async def failing() -> None:
        w.got(await work("fuse"))
        try:
            await fatal("spark")
        except Fatal as e:
            w.got(f"! {e}")
            raise

    try:
        await gather(*[branch(i) for i in range(width)], failing())
    except Fatal:
        w.got(await work("after"))
    return w.log


@flow("sim.natively")
async def natively(w: Witness, width: int) -> Any:
    beside = asyncio.ensure_future(work("beside"))
    for value in await asyncio.gather(*[work(f"n{i}") for i in range(width)]):
        w.got(value)
    w.got(await flaky("after", 1))
    w.got(await beside)
    return w.log


@flow("sim.racing")
async def racing(w: Witness, width: int) -> Any:
    # Tasks, because `as_completed` begins coroutines in the order of their addresses.
    for coming in asyncio.as_completed(
        [asyncio.ensure_future(work(f"r{i}")) for i in range(width)]
    ):
        w.got(await coming)
    w.got(await work("last"))
    return w.log


@flow("sim.large")
async def large(w: Witness, width: int) -> Any:
    for i in range(width):
        w.got((await work(f"l{i}", LARGE)).rstrip("."))
    for value in await gather(*[work(f"w{i}", LARGE) for i in range(width)]):
        w.got(value.rstrip("."))
    return w.log


@workflow(name="sim.inner")
async def inner(part: str, width: int) -> list[str]:
    return [await work(f"{part}{i}") for i in range(width)]


@flow("sim.nested")
async def nested(w: Witness, width: int) -> Any:
    for value in await inner("first", width):
        w.got(value)
    for part in await gather(inner("left", width), inner("right", width)):
        for value in part:
            w.got(value)
    return w.log


@flow("sim.slow")
async def slow(w: Witness, seconds: float) -> Any:
    """One body in flight for long, calls around it."""
    w.got(await work("before"))
    w.got(await long("long", seconds))
    w.got(await work("after"))
    return w.log


@flow("sim.poison")
async def poison(w: Witness, width: int) -> Any:
    """Kills each process that resumes it."""
    for i in range(width):
        w.got(await work(f"s{i}"))
    w.got(await deadly("deadly"))
    return w.log


@flow("sim.blocked")
async def blocked(w: Witness, seconds: float) -> Any:
    w.got(await work("before"))
    w.got(await blocking("blocking", seconds))
    w.got(await work("after"))
    return w.log


# -- waits ----------------------------------------------------------------------------------------


async def _sleep(w: Witness, name: str, seconds: float) -> None:
    w.tell("sleeps", name=name, seconds=seconds)
    await durable.sleep(seconds)
    w.tell("slept", name=name)


@flow("sim.sleeper")
async def sleeper(w: Witness, seconds: float) -> Any:
    w.got(await work("before"))
    await _sleep(w, "sleep.1", seconds)
    w.got(await work("between"))
    await _sleep(w, "sleep.2", 3.0)
    w.got(await work("after"))
    return w.log


async def _event(w: Witness, name: str, timeout: float | None) -> None:
    try:
        w.got(f"event {await durable.wait_event(name, timeout=timeout)}")
    except TimeoutError:
        w.got("timeout")


@flow("sim.listener")
async def listener(w: Witness, events: int, timeout: float | None) -> Any:
    """Waits for events one after the other."""
    for i in range(events):
        await _event(w, "go", timeout)
        w.got(await work(f"after{i}"))
    return w.log


@flow("sim.listeners")
async def listeners(w: Witness, events: int, timeout: float | None) -> Any:
    """Waits for several events of one name at once, beside a step."""

    async def wait(i: int) -> None:
        w.got(await work(f"first{i}"))
        await _event(w, "go", timeout)
        w.got(await work(f"then{i}"))

    await gather(*[wait(i) for i in range(events)])
    return w.log


@flow("sim.deadlines")
async def deadlines(w: Witness, waits: int, timeout: float) -> Any:
    """Waits for one event at several places, until the same moment."""

    async def wait(i: int) -> None:
        await _event(w, "go", timeout)
        w.got(await work(f"then{i}"))

    await gather(*[wait(i) for i in range(waits)])
    return w.log


# -- undo, at most once, singletons ---------------------------------------------------------------


@step(name="sim.unbook", retry=QUICK)
async def unbook(slot: str) -> str:
    body = Body(f"undo-{slot}")
    await virtual_seconds(body.seconds)
    return body.value()


@step(name="sim.book", retry=QUICK, undo=unbook)
async def book(slot: str) -> str:
    body = Body(slot)
    await virtual_seconds(body.seconds)
    return body.value()


@flow("sim.bookings")
async def bookings(w: Witness, width: int, fails: bool) -> Any:
    for i in range(width):
        w.got(await book(f"book{i}"))
    if fails:
        await fatal("end")
    w.got(await long("long", 2.0))
    return w.log


@step(name="sim.once", at_most_once=True)
async def once(slot: str) -> str:
    body = Body(f"once-{slot}")
    await virtual_seconds(body.seconds)
    return body.value()


@flow("sim.onces")
async def onces(w: Witness, width: int) -> Any:
    for i in range(width):
        try:
            w.got(await once(f"o{i}"))
        except OutcomeUnknown:
            w.got("unknown")
    return w.log


@step(name="sim.tardy")
async def tardy(slot: str) -> str:
    """Quick in the first epoch, slow in later ones."""
    body = Body(slot)
    await virtual_seconds(0.1 if body.place.epoch == 1 else 25.0)
    return body.value()


@flow("sim.latecomer")
async def latecomer(w: Witness, seconds: float) -> Any:
    """Two calls whose order of arrival shows."""
    tasks = [asyncio.ensure_future(tardy("tardy")), asyncio.ensure_future(long("long", seconds))]
    for coming in asyncio.as_completed(tasks):
        w.got(await coming)
    w.got(await long("last", 20.0))
    return w.log


@flow("sim.pensive")
async def pensive(w: Witness, seconds: float) -> Any:
    """Code of the function itself takes long after the last step."""
    w.got(await work("before"))
    await virtual_seconds(seconds)
    return w.log


@flow("sim.child")
async def child(w: Witness, part: str) -> Any:
    w.got(await work(f"child-{part}"))
    return w.log


@flow("sim.parent")
async def parent(w: Witness, width: int) -> Any:
    """Starts children and waits for their ends."""
    children = [await child.start(f"{i}") for i in range(width)]
    w.got(await work("meanwhile"))
    for started in children:
        w.tell("child", value=await started.result())
    return w.log


LIMITED = Queue("narrow", concurrency=1)


@flow("sim.narrow", queue=LIMITED)
async def in_turn(w: Witness, width: int) -> Any:
    for i in range(width):
        w.got(await long(f"narrow-{i}-of-{durable.current().run_id}", 1.0))
    return w.log


@flow("sim.alone", singleton="key", on_conflict="wait")
async def single(w: Witness, width: int) -> Any:
    for i in range(width):
        w.got(await long(f"alone-{i}-of-{durable.current().run_id}", 1.0))
    return w.log


# -- two versions of one workflow -----------------------------------------------------------------


@flow("sim.drifting")
async def drifting(w: Witness, width: int) -> Any:
    w.got(await work("first"))
    w.got(await long("second", 3.0))
    w.got(await work("third"))
    return w.log


@flow("sim.drifting (changed)")
async def drifting_changed(w: Witness, width: int) -> Any:
    """Asks for another step where the old code has recorded one."""
    w.tell("called", slot="first-anew", what=await work("first-anew"))
    w.got(await long("second", 3.0))
    return w.log


@flow("sim.patching")
async def patching(w: Witness, name: str, seconds: float) -> Any:
    """As it was before a change in the middle."""
    w.got(await long(f"{name}-before", 2.0))
    w.got(await work(f"{name}-old-way"))
    w.got(await long(f"{name}-last", seconds))
    return w.log


@flow("sim.patching (changed)")
async def patching_changed(w: Witness, name: str, seconds: float) -> Any:
    """Runs that are past the change go on in the old way."""
    w.got(await long(f"{name}-before", 2.0))
    way = "new" if durable.patched("better") else "old"
    w.got(await work(f"{name}-{way}-way"))
    w.got(await long(f"{name}-last", seconds))
    return w.log


ORDINARY: list[WorkflowFunction[..., Any]] = [
    sequence, retries, onces, progress, caught, doomed, branches, mapped, decided, natively,
    racing, large, nested,
]  # fmt: skip


def code(**changed: WorkflowFunction[..., Any]) -> dict[str, Any]:
    """What a worker serves: all of these, some in another version (by the name to serve it by)."""
    served = {name: d for name, d in workflows().items() if name.startswith("sim.")}
    for name, function in changed.items():
        served[f"sim.{name}"] = msgspec.structs.replace(function.definition, name=f"sim.{name}")
    return served
