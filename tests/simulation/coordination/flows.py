"""The workflows that share something: a lock, slots, a schedule, an effect, an outbox."""

from __future__ import annotations

import re
from typing import Any

import durable
from durable import Queue, step
from durable.errors import DurableError, OutcomeUnknown
from durable.store import Store
from durable.testing.simulation.network import Wire
from durable.testing.simulation.world import SimulatedClient, who, world
from tests.simulation.flows import LIMITED, QUICK, flow, long, work
from tests.simulation.witness import Body, Witness
from tests.virtual_time import virtual_seconds

WIDE = Queue("wide", concurrency=2)
KEPT = Queue("kept", concurrency=1, keep_slot=True)
SLOWLY = Queue("slowly", rate=(2, "10s"))
HELD = Queue("held", debounce="4s", debounce_max="10s")


def here() -> str:
    """The id of the running run, as part of a slot's name."""
    return re.sub(r"[^\w@-]", "", durable.current().run_id)


async def _turn(w: Witness, what: str, parts: int, nap: float) -> Any:
    """A body, then a nap that parks the run if it is long, again and again."""
    run = here()
    for i in range(parts):
        w.got(await long(f"{what}-{i}-of-{run}", 1.0))
        if nap:
            await durable.sleep(nap)
    if nap:
        w.got(await work(f"{what}-last-of-{run}"))
    return w.log


# -- one run of a key at a time -------------------------------------------------------------------


def _key(key: str, *_: object) -> str:
    return key


def alone(name: str, on_conflict: str, **options: Any) -> Any:
    """A workflow whose first argument is the key of its lock."""

    async def turn(w: Witness, key: str, parts: int = 1, nap: float = 0.0) -> Any:
        return await _turn(w, f"{key}-{name}", parts, nap)

    turn.__qualname__ = name
    return flow(f"sim.{name}", singleton=_key, on_conflict=on_conflict, **options)(turn)


skipping = alone("skipping", "skip")
raising = alone("raising", "raise")
joining = alone("joining", "join")
waiting = alone("waiting", "wait")
queueing = alone("queueing", "queue")
replacing = alone("replacing", "replace")
expiring = alone("expiring", "wait", lock_ttl=15.0)
impatient = alone("impatient", "wait", max_wait=12.0)
asking = alone("asking", "wait", max_attempts=3, attempt_every=6.0)
asking_once = alone("asking_once", "wait", max_attempts=1)

SINGLE = [skipping, raising, joining, waiting, queueing, replacing, impatient, asking]


# -- so many at a time, so many in a time ---------------------------------------------------------


@flow("sim.wide", queue=WIDE)
async def wide(w: Witness, parts: int, nap: float = 0.0) -> Any:
    return await _turn(w, "wide", parts, nap)


@flow("sim.kept", queue=KEPT)
async def kept(w: Witness, parts: int, nap: float = 0.0) -> Any:
    return await _turn(w, "kept", parts, nap)


@flow("sim.slowly", queue=SLOWLY)
async def slowly(w: Witness, parts: int, nap: float = 0.0) -> Any:
    return await _turn(w, "slowly", parts, nap)


@flow("sim.dozing", queue=LIMITED)
async def dozing(w: Witness, seconds: float) -> Any:
    """Parked for a while, then a long body."""
    w.got(await long(f"dozing-1-of-{here()}", 1.0))
    await durable.sleep(12.0)
    for part in range(2, 6):
        w.got(await long(f"dozing-{part}-of-{here()}", seconds / 4))
    return w.log


# -- once starts have been quiet ------------------------------------------------------------------


@flow("sim.held", queue=HELD)
async def held(w: Witness, key: str, number: int) -> Any:
    """Does what the last of several starts with its key asked for."""
    w.tell("carried", debounce=key, number=number)
    w.got(await work(f"held-{number}-of-{here()}"))
    return w.log


# -- at each tick ---------------------------------------------------------------------------------


@flow("sim.tick")
async def tick(w: Witness, seconds: float = 0.5, nap: float = 0.0) -> Any:
    """One run of a schedule."""
    run = here()
    w.got(await long(f"tick-of-{run}", seconds))
    if nap:
        await durable.sleep(nap)
        w.got(await work(f"tick-last-of-{run}"))
    return w.log


# -- effects --------------------------------------------------------------------------------------


async def mail(to: str) -> str:
    """Something outside, that nobody can take back."""
    there = world()
    there.tokens += 1
    number = there.tokens
    there.history.add(who(), "effect", key=to, number=number)
    await virtual_seconds(0.2)
    there.history.add(who(), "effected", key=to, number=number)
    return f"mail {number} to {to}"


@step(name="sim.guarded", retry=QUICK)
async def guarded(slot: str, to: str) -> str:
    body = Body(slot)
    try:
        told = await durable.once(f"mail:{to}", mail, to)
    except OutcomeUnknown:
        told = ""
    except DurableError as e:  # the store refused the claim: nothing was sent
        raise body.error() from e
    body.world.history.add(who(), "guarded", key=to, told=told)
    return body.value()


@flow("sim.mailing")
async def mailing(w: Witness, to: str) -> Any:
    w.got(await guarded(f"mail-of-{here()}", to))
    return w.log


def client_here() -> SimulatedClient:
    """A client in the process of the running body."""
    there, machine = world(), world().machines[who()]
    return SimulatedClient(Store(Wire(there.network, machine), system=machine.system))


@step(name="sim.drain", retry=QUICK)
async def drain(slot: str, batch: int) -> str:
    """Do a batch of what producers left, then delete each by the generation that was read."""
    body = Body(slot)
    try:
        async with client_here() as client:
            found = [doc async for doc in client.docs.list("outbox/")][:batch]
            for doc in found:
                await virtual_seconds(0.5)
                body.world.history.add(who(), "drained", key=doc.key, value=doc.value)
                await client.doc(doc.key).delete(doc.generation)
    except DurableError as e:
        raise body.error() from e
    return body.value()


@flow("sim.dispatch", singleton="outbox", on_conflict="skip")
async def dispatch(w: Witness, batch: int) -> Any:
    """The dispatcher of an outbox: one at a time, started by a schedule."""
    w.got(await drain(f"drain-of-{here()}", batch))
    return w.log
