"""Random schedules: a seed decides what runs, on what machines, and all that goes wrong."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from durable.testing.simulation.faults import FAULTS, Fault, applies
from durable.testing.simulation.network import Plan, Sent
from durable.testing.simulation.world import TTL, World
from tests.simulation import flows
from tests.simulation.programs import any_program

HOURS_48 = 48 * 3600.0
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
    world.drift = chance.choice([0.0, DRIFT])
    world.body_seconds = chance.choice([0.0, 0.0, 0.5, 3.0])
    world.network.latency = chance.choice([(0.004, 0.06), (0.004, 0.06), (0.05, 0.6)])
    world.network.plan = faults(chance, chance.choice([0.0, 0.01, 0.02, 0.05]))
    concurrency = chance.choice([1, 2, 20])
    world.fleet(chance.randint(1, 3), flows.code(), concurrency=concurrency)
    starts = [world.ask(_start(world, f"run{i}")) for i in range(chance.randint(1, 5))]
    for _ in range(chance.randint(0, 4)):
        await asyncio.sleep(chance.uniform(0, 8))
        _befall(world, chance)
    await asyncio.sleep(chance.uniform(0, 10))
    world.heal()
    await asyncio.gather(*starts)
    world.fleet(1, flows.code())  # one worker lives, whatever became of the others
    runs = [f"run{i}" for i in range(len(starts))]
    await world.ended(*runs)
    await world.settle()


async def _start(world: World, run: str) -> None:
    chance = world.chance
    await asyncio.sleep(chance.choice([0.0, chance.uniform(0, 10)]))
    if chance.random() < 0.4:
        await world.start(any_program, run, chance.getrandbits(32))
        return
    workflow: Any = chance.choice(flows.ORDINARY)
    width = chance.randint(1, 3)
    again = chance.random() < 0.2
    await world.start(workflow, run, width)
    if again:
        await world.start(workflow, run, width)


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


def _befall(world: World, chance: random.Random) -> None:
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
            world.fleet(1, flows.code())
