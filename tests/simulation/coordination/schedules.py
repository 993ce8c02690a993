"""Scenarios of schedules: each tick fires once, whoever lives and whoever dies."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from durable import every
from durable.client import Client
from durable.protocol import names
from durable.protocol.schedules import Schedule
from durable.testing.simulation.faults import Fault
from durable.testing.simulation.machines import EPOCH
from durable.testing.simulation.network import Sent
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.coordination import flows as shared
from tests.simulation.coordination.asking import ask
from tests.simulation.scenarios import scenario
from tests.virtual_time import virtual_seconds


async def scheduled(
    world: World,
    name: str,
    schedule: Schedule,
    *args: Any,
    workflow: Any = shared.tick,
) -> None:
    """A client creates a schedule."""

    async def talk(client: Client) -> str:
        return (await client.schedules.create(name, schedule, workflow, *args)).name

    await ask(world, "schedule", talk)


async def change(world: World, name: str, verb: str) -> None:
    async def talk(client: Client) -> str:
        await getattr(client.schedules, verb)(name)
        return verb

    await ask(world, verb, talk)


def register(world: World, name: str) -> dict[str, Any]:
    stored = world.bucket.peek(names.schedule(name))
    found: dict[str, Any] = {} if stored is None else json.loads(stored.body or b"{}")
    return found


IN_TIME = ("fired", "skipped")
EVER = ("fired", "skipped", "missed")


def decided(world: World, name: str, counts: tuple[str, ...] = IN_TIME) -> int:
    """How many ticks have been decided on."""
    there = register(world, name)
    return sum(there.get(count, 0) for count in counts) + len(there.get("queued", ()))


async def ticked(world: World, name: str, count: int, counts: tuple[str, ...] = IN_TIME) -> None:
    """Wait until so many ticks have been decided on, pause, and wait for the runs to end."""
    await world.until(lambda: decided(world, name, counts) >= count, f"{count} ticks of {name}")
    await change(world, name, "pause")
    await world.until(lambda: all_over(world, name), f"the runs of {name}")


def all_over(world: World, name: str) -> bool:
    started = register(world, name).get("started", [])
    runs = ticks_with_runs(world, name)
    moments = {datetime.fromisoformat(run.rpartition("@")[2]).timestamp() for run in runs}
    return set(started) <= moments and all(map(world.result, runs))


def ticks_with_runs(world: World, name: str) -> list[str]:
    """The ids of the runs of a schedule."""
    runs = [unquote(n.split("/")[1]) for n in world.there() if n.endswith("/start")]
    return [run for run in runs if run.startswith(f"{name}@")]


@scenario
async def ticks_of_many_workers(world: World) -> None:
    """Whoever of three is first starts a tick, and only once."""
    await scheduled(world, "plain", every("6s"))
    world.fleet(3, flows.code())
    await ticked(world, "plain", 3)


@scenario
async def ticks_by_code(world: World) -> None:
    """The schedule stands in the code: each worker declares it."""
    code = flows.code()
    code["sim.tick"] = msgspec.structs.replace(code["sim.tick"], schedule=every("7s"))
    world.fleet(2, code)
    await ticked(world, "sim.tick", 2)


@scenario
async def ticks_of_a_dying_worker(world: World) -> None:
    """Who has decided on a tick dies before its run is there."""
    others, died = world.network.plan, []

    def plan(sent: Sent) -> Fault | None:
        of_tick = "plain@" in unquote(sent.name) and sent.name.startswith(("runs/", "live/"))
        if sent.verb == "create" and of_tick and not died:
            died.append(sent)
            return "crash_before"
        return others(sent)

    world.network.plan = plan
    await scheduled(world, "plain", every("20s"))
    world.fleet(2, flows.code())
    await ticked(world, "plain", 2)


@scenario
async def ticks_half_started(world: World) -> None:
    """The store takes the first half of a start, and does not answer for the other."""
    others, failed = world.network.plan, []

    def plan(sent: Sent) -> Fault | None:
        of_tick = "plain@" in unquote(sent.name) and sent.name.startswith("live/")
        if sent.verb == "create" and of_tick and not failed:
            failed.append(sent)
            return "outage"
        return others(sent)

    world.network.plan = plan
    await scheduled(world, "plain", every("20s", overlap="queue"))
    world.fleet(2, flows.code())
    await ticked(world, "plain", 2)


@scenario
async def ticks_skipped(world: World) -> None:
    """A tick whose predecessor's run is parked is skipped."""
    await scheduled(world, "plain", every("8s"), 0.5, 13.0)
    world.fleet(2, flows.code())
    await ticked(world, "plain", 4)


@scenario
async def ticks_queued(world: World) -> None:
    """... or waits for its end."""
    await scheduled(world, "plain", every("8s", overlap="queue"), 10.0)
    world.fleet(2, flows.code())
    await ticked(world, "plain", 4)


@scenario
async def ticks_that_cancel(world: World) -> None:
    """... or has it cancelled."""
    await scheduled(world, "plain", every("8s", overlap="cancel-old"), 30.0)
    world.fleet(2, flows.code())
    await ticked(world, "plain", 3)


@scenario
async def ticks_side_by_side(world: World) -> None:
    """... or runs beside it."""
    await scheduled(world, "plain", every("8s", overlap="allow"), 12.0)
    world.fleet(2, flows.code())
    await ticked(world, "plain", 3)


@scenario
async def ticks_caught_up(world: World) -> None:
    """Nobody was there for a while: each schedule makes up for it as it says."""
    minute = "1m"
    await scheduled(world, "latest", every(minute))
    await scheduled(world, "none", every(minute, catch_up="skip"))
    await scheduled(world, "two", every(minute, catch_up=2, overlap="allow"))
    await scheduled(world, "all", every(minute, catch_up="all", overlap="queue"))
    await virtual_seconds(330)
    world.fleet(2, flows.code())
    for name in ("latest", "none", "two", "all"):
        await ticked(world, name, 5, EVER)


@scenario
async def ticks_with_jitter(world: World) -> None:
    """Each tick is as late as the schedule's name and its time say, whoever asks."""
    await scheduled(world, "plain", every("12s", jitter=8.0, overlap="allow"))
    world.fleet(2, flows.code())
    await ticked(world, "plain", 3)


@scenario
async def ticks_by_wrong_clocks(world: World) -> None:
    """Wall clocks are days apart: the store's time counts."""
    world.skew = 48 * 3600.0
    await scheduled(world, "plain", every("10s"))
    world.fleet(3, flows.code())
    await ticked(world, "plain", 2)


@scenario
async def ticks_paused(world: World) -> None:
    """The ticks of a pause are none."""
    await scheduled(world, "plain", every("6s"))
    world.fleet(2, flows.code())
    await world.until(lambda: decided(world, "plain") >= 1, "the first tick")
    await change(world, "plain", "pause")
    await virtual_seconds(15)
    await change(world, "plain", "resume")
    await ticked(world, "plain", decided(world, "plain") + 1)


@scenario
async def ticks_by_hand(world: World) -> None:
    """Triggered now, and past ones backfilled, twice."""
    await scheduled(world, "plain", every("30s"))
    world.fleet(2, flows.code())
    until = datetime.fromtimestamp(EPOCH, UTC)
    since = datetime.fromtimestamp(EPOCH - 65, UTC)

    async def trigger(client: Client) -> str:
        return await client.schedules.trigger("plain")

    async def backfill(client: Client) -> list[str]:
        return list(await client.schedules.backfill("plain", since, until))

    await asyncio.gather(
        ask(world, "trigger", trigger),
        ask(world, "backfill", backfill),
        ask(world, "backfill", backfill),
    )
    await ticked(world, "plain", 2)
