"""Random schedules: a seed decides what runs, on what machines, and all that goes wrong."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from durable.testing.simulation.faults import FAULTS, Fault, applies
from durable.testing.simulation.network import Plan, Sent
from durable.testing.simulation.world import TTL, World
from tests.simulation import flows
from tests.simulation.coordination import mix
from tests.simulation.programs import any_program
from tests.simulation.scenarios import cancel, send
from tests.simulation.waiting import heard
from tests.virtual_time import virtual_seconds

HOURS_48 = 48 * 3600.0
SHARING = 0.35  # of the schedules have locks, slots, ticks, keys and effects, too
DRIFT = 0.01  # for which P11 holds
DRIFT_ALWAYS = 0.05  # for which what is recorded is still safe

# How often each fault is drawn: crashes and pauses are what the promises are about.
WEIGHTS: dict[Fault, int] = dict.fromkeys(FAULTS, 2) | {
    "crash_before": 4, "crash_applied": 6, "crash_answered": 4, "pause_over": 8, "pause_half": 2,
    "pause_long": 2, "late": 4, "late_crash": 8, "reply_lost": 6, "busy_storm": 1,
    "outage": 1, "cancel": 1,
}  # fmt: skip


async def chaos(world: World) -> None:
    """One random schedule."""
    chance = world.chance
    world.skew = chance.choice([0.0, HOURS_48])
    world.drift = chance.choice([0.0, 0.0, DRIFT, DRIFT, DRIFT_ALWAYS])
    if world.drift > DRIFT:
        world.history.add("world", "phase", what="clock rates differ too much for P11")
    world.body_seconds = chance.choice([0.0, 0.0, 0.5, 3.0])
    world.network.latency = chance.choice([(0.004, 0.06), (0.004, 0.06), (0.05, 0.6)])
    world.network.plan = faults(chance, chance.choice([0.0, 0.01, 0.02, 0.05]))
    concurrency = chance.choice([1, 2, 20])
    shares = chance.random() < SHARING
    options: dict[str, Any] = {"queues": mix.QUEUES} if shares else {}
    world.fleet(chance.randint(1, 3), flows.code(), concurrency=concurrency, **options)
    if chance.random() < 0.3:
        world.fleet(1, flows.code(), version="v2", concurrency=concurrency, **options)
    starts = [world.ask(_start(world, f"run{i}")) for i in range(chance.randint(1, 5))]
    shared = [world.ask(part) for part in mix.parts(world)] if shares else []
    for _ in range(chance.randint(0, 4)):
        await virtual_seconds(chance.uniform(0, 8))
        _befall(world, chance, options)
    await virtual_seconds(chance.uniform(0, 10))
    world.heal()
    await asyncio.gather(*starts, *shared)
    # One worker lives, whatever became of the others.
    world.fleet(1, flows.code(), **options)
    runs = [f"run{i}" for i in range(len(starts))]
    await world.until(
        lambda: all(world.result(run) or world.flagged(run) for run in runs),
        f"the ends of {runs}",
    )
    if shares:
        await mix.ended(world)
    await world.settle()


async def _start(world: World, run: str) -> None:
    chance = world.chance
    await virtual_seconds(chance.choice([0.0, chance.uniform(0, 10)]))
    kind = chance.choice(["program"] * 4 + ["ordinary"] * 4 + ["special"] * 3)
    if kind == "program":
        seed = chance.getrandbits(32)
        await (heard(world, run, seed) if seed % 4 == 0 else world.start(any_program, run, seed))
    elif kind == "ordinary":
        workflow: Any = chance.choice(flows.ORDINARY)
        width = chance.randint(1, 3)
        await world.start(workflow, run, width)
        if chance.random() < 0.2:
            await world.start(workflow, run, width)
    else:
        await _start_special(world, run)
    if chance.random() < 0.15:
        await virtual_seconds(chance.uniform(0, 6))
        await cancel(world, run)


async def _start_special(world: World, run: str) -> None:
    """A run that waits, undoes, runs once or runs alone."""
    chance = world.chance
    match chance.choice(["sleep", "events", "events", "undo", "once", "alone"]):
        case "sleep":
            await world.start(flows.sleeper, run, chance.choice([2.0, 8.0, 20.0]))
        case "events":
            count = chance.randint(1, 3)
            workflow: Any = chance.choice([flows.listener, flows.listeners])
            await world.start(workflow, run, count, chance.choice([None, 5.0, 15.0]))
            pauses = [chance.choice([0.0, chance.uniform(0, 8)]) for _ in range(count)]
            await send(world, run, [f"e{i}" for i in range(count)], pauses)
        case "undo":
            await world.start(flows.bookings, run, chance.randint(1, 3), chance.random() < 0.5)
        case "once":
            await world.start(flows.onces, run, chance.randint(1, 3))
        case "alone":
            await world.start(flows.single, run, chance.randint(1, 2))


def faults(chance: random.Random, share: float) -> Plan:
    """A fault at this share of the calls."""
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())

    def plan(sent: Sent) -> Fault | None:
        # Records are what the promises are about, and few among the calls of idle workers.
        if chance.random() >= share * (5 if sent.name.startswith("runs/") else 1):
            return None
        fault = chance.choices(kinds, weights)[0]
        return fault if applies(fault, sent.verb, sent.name) else None

    return plan


def _befall(world: World, chance: random.Random, options: dict[str, Any]) -> None:
    """Something happens to a worker at a moment of no meaning."""
    alive = world.alive
    if not alive:
        return
    member = chance.choice(alive)
    match chance.choice(
        ["kill", "kill", "stop", "stop", "stop", "suspend", "block", "jump", "end"]
    ):
        case "kill":
            member.machine.kill()
        case "stop":
            member.machine.stop(chance.choice([0.5, 1.5, 1.5, 1.5, 10]) * TTL)
        case "suspend":
            member.machine.stop(chance.choice([0.5, 1.5]) * TTL, suspend=True)
        case "block":
            member.machine.block(chance.choice([0.5, 1.5, 3]) * TTL)
        case "jump":
            member.machine.jump(chance.uniform(-86_400, 86_400))
        case "end":
            world.terminate(member)
            world.fleet(1, flows.code(), **options)
