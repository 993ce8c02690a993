"""Cheap steps, whose outcomes are recorded together and later: flows, scenarios, planted bugs.

To import it registers the scenarios and the bugs. The slots of cheap steps begin with `cheap`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

import durable
from durable import step
from durable.protocol import names, records
from durable.runtime.closing import LateRecord, Stopped
from durable.runtime.grouping import Groups
from durable.runtime.performing import Performer
from durable.store import Refused
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.flows import flow, work
from tests.simulation.late import late
from tests.simulation.planted import bug, replaced
from tests.simulation.scenarios import one, scenario
from tests.simulation.witness import Body, Witness
from tests.virtual_time import virtual_seconds


@step(name="sim.cheap", durability="group")
async def cheap(slot: str, seconds: float = 0.0) -> str:
    body = Body(slot)
    await virtual_seconds(seconds)
    return body.value()


def drawn(token: str) -> int:
    """What another value would make another argument of."""
    return zlib.crc32(token.encode()) % 100


@flow("sim.cheaply")
async def cheaply(w: Witness, width: int) -> Any:
    """Ordinary steps follow from cheap ones; the last cheap ones go right into the result."""
    for i in range(width):
        first = w.got(await cheap(f"cheap{i}a"))
        second = w.got(await cheap(f"cheap{i}b", 0.2))
        w.got(await work(f"w{i}", drawn(first + second)))
    w.got(list(await durable.gather(*[cheap(f"cheap-{i}", i / 4) for i in range(3)])))
    return w.log


@flow("sim.slowly cheap")
async def slowly_cheap(w: Witness, width: int) -> Any:
    """Nothing but cheap steps, for longer than they may be in memory alone, and a sleep."""
    for i in range(width):
        w.got(await cheap(f"cheap{i}", 0.7))
    await durable.sleep(20)
    w.got(await cheap("cheap-last"))
    return w.log


@flow("sim.long and cheap")
async def long_and_cheap(w: Witness, seconds: float) -> Any:
    """A cheap step that takes as long as a takeover, and what follows from it."""
    token = w.got(await cheap("cheap-long", seconds))
    w.got(await work("then", drawn(token)))
    token = w.got(await cheap("cheap-short"))
    w.got(await work("last", drawn(token)))
    return w.log


# -- scenarios ------------------------------------------------------------------------------------


@scenario
async def cheap_steps(world: World) -> None:
    await one(world, cheaply, 2)


@scenario
async def nothing_but_cheap_steps(world: World) -> None:
    await one(world, slowly_cheap, 4)


@scenario
async def cheap_steps_of_many_owners(world: World) -> None:
    """Two workers that die in turn, each in the middle of cheap steps."""
    world.fleet(3, flows.code())
    await world.start(slowly_cheap, "run", 6)
    for seconds in (2.0, 26.0):
        await virtual_seconds(seconds)
        for member in world.alive[:2]:
            if member.carries:
                member.machine.kill()
    await world.ended("run")


@scenario
async def late_group(world: World) -> None:
    """A dead owner's group lands while the next has other values in memory."""
    late(world, lambda s: "/groups/" in s.name and s.verb == "create", "late_crash", 2.0)
    world.fleet(2, flows.code())
    await world.start(long_and_cheap, "run", 20.0)
    await world.ended("run")


# -- planted bugs ---------------------------------------------------------------------------------


@bug
def an_ordinary_body_does_not_wait_for_groups() -> Iterator[None]:
    async def at_once(_self: Performer, _call: Any, _branch: Any) -> None:
        return None

    with replaced(Performer, "_wait_for_groups", at_once):
        yield


@bug
def a_late_group_is_passed_over() -> Iterator[None]:
    """Whoever finds its place in the chain taken takes the next, and keeps its values."""

    async def write(self: Groups) -> LateRecord | Stopped | None:
        group = self._sending = self._sending or self._next()
        owner = self._ownership
        while True:
            name, body = names.group(owner.run_id, owner.instance, group.k), records.encode(group)
            written = await self._around.store.create(name, body, nonce=group.nonce)
            if not isinstance(written, Refused):
                break
            group = self._sending = msgspec.structs.replace(group, k=group.k + 1)
        self._acknowledged(group)
        return None

    with replaced(Groups, "_write", write):
        yield


@bug
def a_run_ends_before_its_last_group() -> Iterator[None]:
    async def nothing(_self: Groups) -> None:
        return None

    with replaced(Groups, "write_rest", nothing):
        yield
