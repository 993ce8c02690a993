"""Scenarios of limited queues: so many at a time, so many in a time."""

from __future__ import annotations

from typing import Any

from durable.client import Client
from durable.testing.simulation.faults import Fault
from durable.testing.simulation.network import Sent
from durable.testing.simulation.world import Member, World
from tests.simulation import flows
from tests.simulation.coordination import flows as shared
from tests.simulation.coordination.asking import BETWEEN, ask, one_by_one
from tests.simulation.late import late
from tests.simulation.scenarios import befalls_first, begun, cancel, scenario
from tests.virtual_time import virtual_seconds


def serving(world: World, *queues: str, workers: int = 2, **options: Any) -> None:
    world.fleet(workers, flows.code(), queues=queues, **options)


async def pause(world: World, on: bool, **what: str) -> None:
    async def talk(client: Client) -> str:
        await (client.queues.pause if on else client.queues.resume)(**what)
        return "done"

    await ask(world, "pause" if on else "resume", talk)


@scenario
async def queue_of_two(world: World) -> None:
    """Five runs, two slots."""
    serving(world, "wide")
    runs = [f"run{i}" for i in range(5)]
    for run in runs:
        world.ask(world.start(shared.wide, run, 1))
    await world.ended(*runs)


@scenario
async def queue_by_priority(world: World) -> None:
    """Who comes last goes first, if it is more important."""
    serving(world, "narrow")
    await world.start(flows.in_turn, "holder", 12)
    await world.until(lambda: entered(world, "holder"), "the holder to have begun")
    runs = ["plain", "urgent", "idle"]
    for run, priority in zip(runs, (0, -5, 5), strict=True):
        await world.start(flows.in_turn, run, 1, priority=priority)
        await virtual_seconds(BETWEEN)
    await world.ended("holder", *runs)


def entered(world: World, run: str) -> bool:
    return any(e.kind == "enter" and e.facts["run"] == run for e in world.history.events)


@scenario
async def queue_of_sleepers(world: World) -> None:
    """A parked run frees its slot, and waits for one again."""
    serving(world, "wide")
    starts = [(shared.wide, f"run{i}", (1, 14.0)) for i in range(3)]
    await world.ended(*await one_by_one(world, *starts))


@scenario
async def queue_that_keeps_slots(world: World) -> None:
    """A parked run keeps its slot."""
    serving(world, "kept")
    starts = [(shared.kept, f"run{i}", (1, 14.0 - 14.0 * i)) for i in range(2)]
    await world.ended(*await one_by_one(world, *starts))


@scenario
async def queue_with_a_rate(world: World) -> None:
    """Two in ten seconds."""
    serving(world, "slowly")
    runs = [f"run{i}" for i in range(5)]
    for run in runs:
        world.ask(world.start(shared.slowly, run, 1))
    await world.ended(*runs)


@scenario
async def queue_paused(world: World) -> None:
    """Runs wait while it is paused, and go on afterwards."""
    serving(world, "narrow")
    await world.start(flows.in_turn, "holder", 2)
    await world.until(lambda: entered(world, "holder"), "the holder to have begun")
    await pause(world, True, queue="narrow")
    runs = await one_by_one(world, *[(flows.in_turn, f"run{i}", (1,)) for i in range(2)])
    await virtual_seconds(6)
    await pause(world, False, queue="narrow")
    await world.ended("holder", *runs)


@scenario
async def workflow_paused(world: World) -> None:
    """Runs of one workflow wait; those of another in the same queue do not."""
    await pause(world, True, workflow="sim.sequence")
    world.fleet(2, flows.code())
    await world.start(flows.sequence, "paused", 1)
    await world.start(flows.nested, "free", 1)
    await virtual_seconds(80)
    await world.ended("free")
    await pause(world, False, workflow="sim.sequence")
    await world.ended("paused")


@scenario
async def queue_of_a_dead_worker(world: World) -> None:
    """The slot stays with the run whose worker is dead, not with the worker."""
    first = world.worker(flows.code(), queues=("narrow",))
    await world.start(flows.in_turn, "run0", 2)
    await begun(world, first, "narrow-0-of-run0")
    await world.start(flows.in_turn, "run1", 1)
    serving(world, "narrow")
    first.machine.kill()
    await world.ended("run0", "run1")


@scenario
async def queue_of_a_zombie(world: World) -> None:
    """A worker wakes when its run's slot has long been another's."""
    first = world.worker(flows.code(), queues=("narrow",))
    await world.start(flows.in_turn, "run0", 2)
    await begun(world, first, "narrow-0-of-run0")
    first.machine.stop(20.0)
    serving(world, "narrow")
    await world.start(flows.in_turn, "run1", 6)
    await world.ended("run0", "run1")
    await virtual_seconds(10)


@scenario
async def queue_with_a_cancelled_waiter(world: World) -> None:
    serving(world, "narrow")
    runs = await one_by_one(world, *[(flows.in_turn, f"run{i}", (2,)) for i in range(3)])
    await cancel(world, "run1")
    await world.ended(*runs)


@scenario
async def queue_of_a_late_good_bye(world: World) -> None:
    """A dying worker gives up its run's slot; that lands when the run has gone on elsewhere."""
    slots = "queues/narrow/slots/"
    late(
        world, lambda s: s.name.startswith(slots) and s.verb in {"delete", "replace"},
        "late_crash", 2.5,
    )  # fmt: skip
    serving(world, "narrow")
    starts = [(shared.dozing, f"run{i}", (20.0,)) for i in range(2)]
    await world.ended(*await one_by_one(world, *starts))


@scenario
async def queue_of_a_slow_good_bye(world: World) -> None:
    """A worker stops before it gives up its ended run's slot, and goes on when another has it."""

    def leaves(sent: Sent) -> bool:
        slot = sent.name.startswith("queues/narrow/slots/")
        return slot and sent.who == first.machine.name and world.result("run0")

    befalls_first(world, leaves, "pause_over")
    world.network.ttl = 24.0
    first = world.worker(flows.code(), queues=("narrow",))
    await world.start(flows.in_turn, "run0", 1)
    await begun(world, first, "narrow-0-of-run0")
    serving(world, "narrow")
    await world.start(flows.in_turn, "run1", 30)
    await world.ended("run0", "run1")


@scenario
async def queue_of_a_slow_parking(world: World) -> None:
    """A worker stops while it parks a run, and goes on when the run has bodies elsewhere.

    For a while the store does not tell it that its lease is lost.
    """
    others = world.network.plan

    def plan(sent: Sent) -> Fault | None:
        its_lease = sent.who == first.machine.name and sent.name.startswith("workers/")
        return "unsent" if its_lease and 15.0 < world.loop.now < 30.0 else others(sent)

    world.network.plan = plan
    befalls_first(world, lambda sent: gives_up_parked(world, first, sent), "pause_over")
    first = world.worker(flows.code(), queues=("narrow",))
    await world.start(shared.dozing, "run0", 40.0)
    await begun(world, first, "dozing-1-of-run0")
    serving(world, "narrow")
    await world.start(flows.in_turn, "run1", 1)
    await world.ended("run0", "run1")


def gives_up_parked(world: World, member: Member, sent: Sent) -> bool:
    """Whether a worker that has left a hint when to wake the run looks what slot to free."""
    has_its_hint = any(name.startswith("timers/") for name in world.there())
    return has_its_hint and sent.who == member.machine.name and sent.name.startswith("queues/")
