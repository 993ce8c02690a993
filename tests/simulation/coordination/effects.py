"""Scenarios of dedup keys, effects that take place once, and an outbox that is drained."""

from __future__ import annotations

import asyncio
from typing import Any

from durable import every
from durable.client import Client
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.coordination import flows as shared
from tests.simulation.coordination.asking import ask, unfinished
from tests.simulation.coordination.schedules import all_over, change, scheduled
from tests.simulation.scenarios import scenario
from tests.virtual_time import virtual_seconds


async def keyed(world: World, run: str, key: str, width: int) -> None:
    """A start that carries a dedup key; its client is told which run that is."""

    async def talk(client: Client) -> list[str]:
        options = flows.sequence.options(id=run, dedup_key=key)
        handle = await client.start(options, width)
        return [handle.id, handle.instance]

    await ask(world, f"keyed {key}", talk)


@scenario
async def dedup_keys(world: World) -> None:
    """Three start with one key at once, a fourth with another, a fifth when all is over."""
    world.fleet(2, flows.code())
    starts = [world.ask(keyed(world, f"run{i}", "key", 2)) for i in range(3)]
    starts.append(world.ask(keyed(world, "apart", "other", 1)))
    await asyncio.gather(*starts)
    await world.until(lambda: not unfinished(world), "the runs with keys to end")
    await keyed(world, "again", "key", 1)
    await world.until(lambda: not unfinished(world), "the last run to end")


@scenario
async def guarded_effects(world: World) -> None:
    """Three runs want one effect, a fourth another."""
    world.fleet(2, flows.code())
    runs = [f"run{i}" for i in range(4)]
    for i, run in enumerate(runs):
        world.ask(world.start(shared.mailing, run, "ana" if i < 3 else "ben"))
    await world.ended(*runs)


async def produce(world: World, key: str, value: int) -> None:
    """Leave something in the outbox."""

    async def talk(client: Client) -> list[Any]:
        await client.doc(f"outbox/{key}").update(lambda there: max(there or 0, value))
        return [key, value]

    await ask(world, "produce", talk)


@scenario
async def outbox(world: World) -> None:
    """Producers leave requests, and newer ones for the same key; a scheduled singleton drains."""
    await scheduled(world, "drain", every("3s"), 3, workflow=shared.dispatch)
    world.fleet(2, flows.code())
    producers = []
    for value, key in enumerate("abcaabcaba", start=1):
        producers.append(world.ask(produce(world, key, value)))
        await virtual_seconds(0.6)
    await asyncio.gather(*producers)
    await world.until(lambda: not _pending(world), "the outbox to be empty")
    await change(world, "drain", "pause")
    await world.until(lambda: all_over(world, "drain"), "the dispatchers to end")


def _pending(world: World) -> list[str]:
    return [name for name in world.there() if name.startswith("docs/")]
