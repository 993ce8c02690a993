"""Scenarios: what users and workers do; faults are added from outside, one at any store call.

To add one is a decorated function of a few lines. It ends when everything that it started has
come to its end; what must hold is the checker's business. What does not end by itself is told to
the checker by `expect`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from durable.client import Client
from durable.client.purging import purge
from durable.errors import NotFound, RunFailed
from durable.testing.simulation.faults import Fault
from durable.testing.simulation.network import Sent
from durable.testing.simulation.world import Member, World
from tests.simulation import flows
from tests.virtual_time import virtual_seconds

PARKED = 10.0  # seconds after which a run that only waits is parked

SCENARIOS: dict[str, Callable[[World], Awaitable[None]]] = {}


def scenario(fn: Callable[[World], Awaitable[None]]) -> Callable[[World], Awaitable[None]]:
    """Make it one of those that are tried with each fault at each store call."""

    async def whole(world: World) -> None:
        await fn(world)
        await world.settle()

    SCENARIOS[fn.__name__] = whole
    return whole


async def result(world: World, run: str) -> None:
    """A client waits for the outcome; it asks again if it is told an error."""

    async def talk(client: Client) -> Any:
        handle = await client.get(run)
        return await handle.result(timeout=120)

    for _ in range(10):
        reply = await world.client("result", talk, run)
        if reply.value is not None or isinstance(reply.error, RunFailed):
            return


async def one(world: World, workflow: Any, *args: Any, workers: int = 2) -> None:
    world.fleet(workers, flows.code())
    await world.start(workflow, "run", *args)
    await world.ended("run")
    await result(world, "run")


# -- one run, each kind of code -------------------------------------------------------------------


@scenario
async def sequential(world: World) -> None:
    await one(world, flows.sequence, 2)


@scenario
async def gathered(world: World) -> None:
    await one(world, flows.branches, 2)


@scenario
async def mapped(world: World) -> None:
    await one(world, flows.mapped, 3)


@scenario
async def retried(world: World) -> None:
    await one(world, flows.retries, 3)


@scenario
async def progress(world: World) -> None:
    await one(world, flows.progress, 2)


@scenario
async def errors(world: World) -> None:
    await one(world, flows.caught, 2)


@scenario
async def failing(world: World) -> None:
    await one(world, flows.doomed, 1)


@scenario
async def decided(world: World) -> None:
    await one(world, flows.decided, 2)


@scenario
async def plain_asyncio(world: World) -> None:
    await one(world, flows.natively, 2)


@scenario
async def as_completed(world: World) -> None:
    await one(world, flows.racing, 3)


@scenario
async def large_values(world: World) -> None:
    await one(world, flows.large, 1)


@scenario
async def nested(world: World) -> None:
    await one(world, flows.nested, 2)


@scenario
async def long_body(world: World) -> None:
    """A body longer than a lease, so that whatever happens, happens during it."""
    await one(world, flows.slow, 16.0)


@scenario
async def blocked_loop(world: World) -> None:
    """A body blocks its event loop for several leases: nothing may be taken from it."""
    await one(world, flows.blocked, 40.0)


# -- several runs and clients ---------------------------------------------------------------------


@scenario
async def concurrent_starts(world: World) -> None:
    """Three clients start one id, a fourth wants other input under it."""
    world.fleet(1, flows.code())
    starts = [world.ask(world.start(flows.sequence, "run", 1)) for _ in range(3)]
    await asyncio.gather(*starts)
    await world.start(flows.sequence, "run", 2)
    await world.ended("run")
    await result(world, "run")


@scenario
async def started_before_workers(world: World) -> None:
    """Runs wait; then two workers race for them, with room for one each."""
    for i in range(3):
        await world.start(flows.sequence, f"run{i}", 1)
    world.fleet(2, flows.code(), concurrency=1)
    await world.ended("run0", "run1", "run2")


@scenario
async def run_in_process(world: World) -> None:
    """`client.run`: whoever dies leaves the run to a worker."""

    async def talk(client: Client) -> Any:
        return await client.run(flows.sequence.options(id="run"), 2)

    await world.client("run", talk, "run")
    world.fleet(1, flows.code())
    await world.start(flows.sequence, "run", 2)
    await world.ended("run")


@scenario
async def many_runs(world: World) -> None:
    world.fleet(2, flows.code(), concurrency=3)
    runs = [f"run{i}" for i in range(5)]
    for run in runs:
        world.ask(world.start(flows.sequence, run, 1))
    await world.ended(*runs)


# -- workers come and go --------------------------------------------------------------------------


@scenario
async def drain(world: World) -> None:
    """SIGTERM in the middle of a body: the run goes on elsewhere."""
    first = world.worker(flows.code())
    await world.start(flows.slow, "run", 6.0)
    await begun(world, first, "long")
    world.fleet(1, flows.code())
    world.terminate(first)
    await world.ended("run")


@scenario
async def zombie(world: World) -> None:
    """A worker is stopped in the middle of a body and wakes after a takeover."""
    first = world.worker(flows.code())
    await world.start(flows.branches, "run", 2)
    await begun(world, first, "b0-1")
    first.machine.stop(30.0)
    world.fleet(2, flows.code())
    await world.ended("run")
    await virtual_seconds(20)


@scenario
async def stopped_during_a_renewal(world: World) -> None:
    """The answer to a renewal comes to a worker that is stopped, and hears of it too late."""
    world.body_seconds = 1.0
    first = world.worker(flows.code())
    await world.start(flows.branches, "run", 6)
    await begun(world, first, "b0-1")
    others, stopped = world.network.plan, list[Sent]()

    def plan(sent: Sent) -> Fault | None:
        renews = sent.verb == "replace" and sent.name.startswith("workers/")
        if renews and sent.who == first.machine.name and not stopped:
            stopped.append(sent)
            world.loop.at(world.loop.now + 0.001, world.loop.world, first.machine.stop, 30.0)
        return others(sent)

    world.network.plan = plan
    world.fleet(2, flows.code())
    await world.ended("run")


@scenario
async def sweepers_race(world: World) -> None:
    """Three workers see one die."""
    first = world.worker(flows.code())
    await world.start(flows.slow, "run", 2.0)
    await world.start(flows.sequence, "other", 3)
    await begun(world, first, "long")
    world.fleet(3, flows.code())
    await virtual_seconds(1)
    first.machine.kill()
    await world.ended("run", "other")


@scenario
async def poisonous(world: World) -> None:
    """One run kills each process that resumes it; an innocent one beside it must end."""
    world.fleet(2, flows.code())
    world.expect("poison", "attention")
    await world.start(flows.poison, "poison", 1)
    await world.start(flows.slow, "innocent", 3.0)
    await world.ended("innocent")
    await world.until(lambda: world.flagged("poison"), "the poison run to need attention")


@scenario
async def two_versions(world: World) -> None:
    """Old and new code side by side: drift is loud, the wrong value is never handed over."""
    world.expect("run", "either")
    old = world.worker(flows.code(), version="v1")
    await world.start(flows.drifting, "run", 1)
    await begun(world, old, "second")
    world.fleet(1, flows.code(drifting=flows.drifting_changed), version="v2")
    old.machine.kill()
    await world.until(
        lambda: world.flagged("run") or world.result("run"), "the run to need attention"
    )
    world.fleet(1, flows.code(), version="v3")
    await world.ended("run")


@scenario
async def patched(world: World) -> None:
    """Code changes under a run that is past the change, and under one that is not."""
    old = world.worker(flows.code(), version="v1")
    await world.start(flows.patching, "past", "past", 3.0)
    await begun(world, old, "past-last")
    await world.start(flows.patching, "before", "before", 1.0)
    await begun(world, old, "before-before")
    world.fleet(2, flows.code(patching=flows.patching_changed), version="v2")
    old.machine.kill()
    await world.ended("past", "before")


@scenario
async def taken_over_in_short_pages(world: World) -> None:
    """Each page of a list has one object, of a run that has left many when its owner dies."""
    others = world.network.plan

    def plan(sent: Sent) -> Fault | None:
        return others(sent) or ("short_pages" if sent.verb == "list" else None)

    world.network.plan, world.body_seconds = plan, 1.0
    first = world.worker(flows.code())
    await world.start(flows.sequence, "run", 4)
    await begun(world, first, "s3")
    world.fleet(1, flows.code())
    first.machine.kill()
    await world.ended("run")


# -- waits ----------------------------------------------------------------------------------------


@scenario
async def short_sleep(world: World) -> None:
    """Slept in place: the run is not parked."""
    await one(world, flows.sleeper, 4.0)


@scenario
async def parked_sleep(world: World) -> None:
    """Longer than the threshold: the run is parked and woken again."""
    await one(world, flows.sleeper, 25.0)


async def send(
    world: World, run: str, values: list[str], pauses: list[float], *, name: str = "go"
) -> None:
    """Send events, each until it is known to be accepted or too late."""
    for value, pause in zip(values, pauses, strict=True):
        await virtual_seconds(pause)

        async def talk(client: Client, value: str = value) -> str:
            handle = await client.get(run)
            return await handle.send(name, value, key=value)

        for _ in range(20):
            reply = await world.client("send", talk, run)
            if reply.value is not None or world.result(run):
                break
            await virtual_seconds(1)


async def heard(world: World, workflow: Any, timeout: float | None, pauses: list[float]) -> None:
    world.fleet(2, flows.code())
    await world.start(workflow, "run", len(pauses), timeout)
    await send(world, "run", [f"e{i}" for i in range(len(pauses))], pauses)
    await world.ended("run")
    await result(world, "run")


@scenario
async def events(world: World) -> None:
    """One before its wait, one during it."""
    await heard(world, flows.listener, None, [0.0, 2.0])


@scenario
async def event_to_a_parked_run(world: World) -> None:
    await heard(world, flows.listener, None, [16.0])


def send_into_waits(world: World, runs: list[str], earliest: float, latest: float) -> None:
    """Workers, and an event for each of the runs so long after its first wait began."""
    others, sending = world.network.plan, dict[str, asyncio.Task[None]]()

    def plan(sent: Sent) -> Fault | None:
        run = sent.name.split("/")[1] if "/waits/" in sent.name else ""
        if run in runs and run not in sending:
            pause = world.chance.uniform(earliest, latest)
            sending[run] = world.ask(send(world, run, ["e0"], [pause]))
        return others(sent)

    world.network.plan = plan
    world.fleet(2, flows.code())


@scenario
async def events_while_parking(world: World) -> None:
    """Each is sent while its run is about to be parked: within a second, before or after."""
    runs = [f"run{i}" for i in range(8)]
    send_into_waits(world, runs, PARKED - 1.2, PARKED + 0.3)
    for run in runs:
        world.ask(world.start(flows.listener, run, 1, None))
    await world.ended(*runs)


@scenario
async def event_as_waits_end(world: World) -> None:
    """Three waits are over at once; one of them gets the event that was sent just before."""
    runs = [f"run{i}" for i in range(4)]
    send_into_waits(world, runs, 3.4, 4.0)
    for run in runs:
        world.ask(world.start(flows.deadlines, run, 3, 4.0))
    await world.ended(*runs)


@scenario
async def event_against_timeout(world: World) -> None:
    """It is sent about when the wait ends."""
    await heard(world, flows.listener, 6.0, [7.0])


@scenario
async def events_for_two_waits(world: World) -> None:
    await heard(world, flows.listeners, None, [0.5, 0.2])


# -- cancel and undo ------------------------------------------------------------------------------


async def cancel(world: World, run: str) -> None:
    async def talk(client: Client) -> str:
        return await (await client.get(run)).cancel()

    for _ in range(20):
        reply = await world.client("cancel", talk, run)
        if reply.value is not None or world.result(run):
            return
        await virtual_seconds(1)


async def cancelled(world: World, workflow: Any, *args: Any, after: float) -> None:
    world.fleet(2, flows.code())
    await world.start(workflow, "run", *args)
    await virtual_seconds(after)
    await cancel(world, "run")
    await world.ended("run")


@scenario
async def cancel_in_a_body(world: World) -> None:
    await cancelled(world, flows.slow, 6.0, after=3.0)


@scenario
async def cancel_against_completion(world: World) -> None:
    await cancelled(world, flows.sequence, 2, after=1.2)


@scenario
async def cancel_a_parked_run(world: World) -> None:
    await cancelled(world, flows.sleeper, 60.0, after=17.0)


@scenario
async def undone_by_cancel(world: World) -> None:
    await cancelled(world, flows.bookings, 2, False, after=2.5)


@scenario
async def undone_by_failure(world: World) -> None:
    await one(world, flows.bookings, 2, True)


# -- what runs once, or alone ---------------------------------------------------------------------


@scenario
async def at_most_once(world: World) -> None:
    await one(world, flows.onces, 3)


@scenario
async def singletons(world: World) -> None:
    """Two runs of one key: the second waits for the end of the first."""
    world.fleet(2, flows.code())
    for run in ("one", "two"):
        world.ask(world.start(flows.single, run, 2))
    await world.ended("one", "two")


@scenario
async def children(world: World) -> None:
    """A parent, two children, all of them on whatever worker."""
    await one(world, flows.parent, 2)


@scenario
async def limited_queue(world: World) -> None:
    """Three runs, one slot."""
    world.fleet(2, flows.code(), queues=("default", "narrow"))
    runs = [f"run{i}" for i in range(3)]
    for run in runs:
        world.ask(world.start(flows.in_turn, run, 1))
    await world.ended(*runs)


# -- ids are used again ---------------------------------------------------------------------------


@scenario
async def purged_and_started_again(world: World) -> None:
    """What comes late for the old instance does not touch the new one."""
    world.expect("run", "replaced")
    world.fleet(1, flows.code())
    await world.start(flows.sequence, "run", 1)
    await world.ended("run")

    async def talk(client: Client) -> int:
        return await purge(client.store, "run")

    for _ in range(20):
        reply = await world.client("purge", talk, "run")
        if reply.value is not None or isinstance(reply.error, NotFound):
            break
        await virtual_seconds(1)
    await world.start(flows.sequence, "run", 2)
    await world.ended("run")


@scenario
async def restarted(world: World) -> None:
    """A failed run is restarted under its id, as a new instance."""
    world.expect("run", "replaced")
    world.fleet(2, flows.code())
    await world.start(flows.doomed, "run", 1)
    await world.ended("run")

    async def talk(client: Client) -> str:
        return (await client.restart("run")).instance

    await restart(world, talk)
    await world.ended("run")


@scenario
async def restarted_during_clean_up(world: World) -> None:
    """The last owner of a failed run still writes its history when the run is restarted."""
    world.expect("run", "replaced")
    unless_history(world, 8.0)
    world.fleet(1, flows.code())
    await world.start(flows.doomed, "run", 1)
    await world.ended("run")

    async def talk(client: Client) -> str:
        return (await client.restart("run")).instance

    await restart(world, talk)
    await world.ended("run")


async def restart(world: World, talk: Callable[[Client], Awaitable[str]]) -> None:
    """Until it is known to be restarted. A restart that was cut off is finished by a start."""
    first = world.instance("run")
    for _ in range(20):
        reply = await world.client("restart", talk, "run")
        if reply.value is not None:
            return
        if world.instance("run") != first:
            await world.start(flows.doomed, "run", 1)
            return
        await virtual_seconds(1)


def unless_history(world: World, until: float) -> None:
    """Until then entries of the history are not written, whatever else goes wrong."""
    others = world.network.plan

    def plan(sent: Sent) -> Fault | None:
        late = sent.name.startswith("history/") and world.loop.now < until
        return "unsent" if late else others(sent)

    world.network.plan = plan


def befalls_first(world: World, which: Callable[[Sent], bool], fault: Fault) -> None:
    """The first such call meets this fault, whatever else goes wrong."""
    others, met = world.network.plan, list[Sent]()

    def plan(sent: Sent) -> Fault | None:
        if which(sent) and not met:
            met.append(sent)
            return fault
        return others(sent)

    world.network.plan = plan


async def begun(world: World, member: Member, slot: str) -> None:
    """Wait until a body of that slot has begun, or the worker that should run it is gone."""

    def true() -> bool:
        bodies = (e for e in world.history.events if e.kind == "body")
        return member.ended or member.machine.dead or any(e.facts["slot"] == slot for e in bodies)

    await world.until(true, f"the body of {slot} to begin")
