"""Timer hints: `timers/<due>/<run>/<instance>/<wait>` says when a parked run is to be woken.

Every park makes one, named by the deadline that comes first, or `never`; a hint exists whenever a
run that is not over has no marker. Only the run's holder deletes a hint, once its wait is over.
Whoever promotes it only wakes the run, whose marker then names the hint: so the holder can
delete it without looking for it, also if the run is over by then.

One hint moves: of a run that starts hold back for longer than it says. Whoever promotes it makes
the hint for the later time, then deletes it, and the run sleeps on: a key that is busy for long
must not change the run's marker again and again. One that is left of a run that has begun goes.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import msgspec

from durable.errors import StoreError
from durable.protocol import moments, names, records
from durable.protocol.queues import DEBOUNCE_PATH
from durable.protocol.records import Marker, Start, Timer, Wait
from durable.runtime import debouncing, markers
from durable.runtime.closing import Parked
from durable.runtime.debouncing import Closed
from durable.runtime.reading import record
from durable.store import Refused, Store, Stored, Written

_timer = msgspec.json.Decoder(Timer)


def name_of(run: str, instance: str, path: str, due: float | None) -> str:
    """The name of the hint for that wait; those without a deadline share one."""
    if due is None:
        return names.timer(names.NEVER, run, instance, "")
    return names.timer(moments.stamp_after(due), run, instance, path)


async def put(store: Store, marker: Marker, instance: str, parked: Parked) -> None:
    """Make the hint of a run that is about to be parked.

    One that is there already is the same, unless it has no deadline: then it says what the run
    waited for before.
    """
    hint = Timer(
        run=marker.run, instance=instance, workflow=marker.workflow, queue=marker.queue,
        nonce=store.system.token(), path=parked.path, due=parked.due, version=marker.version,
        created=marker.created, waits_for=parked.why, pin=marker.pin,
    )  # fmt: skip
    name = name_of(marker.run, instance, parked.path, parked.due)
    body = records.encode(hint)
    written = await store.create(name, body, nonce=hint.nonce, read_back=parked.due is None)
    if isinstance(written, Refused) and written.current is not None and parked.due is None:
        there = written.current
        earlier = there.meta.get("nonce", "")
        await store.replace(name, there.generation, body, nonce=hint.nonce, earlier=earlier)


async def drop(store: Store, marker: Marker, name: str) -> None:
    """Delete the hint of a wait that is over, while the run goes on.

    One that stays is harmless: it wakes the run once more, or is deleted when the run ends.
    """
    with contextlib.suppress(StoreError):
        await delete(store, marker, name)


async def delete(store: Store, marker: Marker, name: str) -> None:
    """Delete a hint, if there is one.

    Raises:
        StoreError: it may still be there.
    """
    generation = marker.timer_generation
    if marker.timer != name:
        stored = await store.read(name)
        if stored is None:
            return
        generation = stored.generation
    await store.delete(name, generation)


async def clear(store: Store, run: str, start: Start, waits: list[Wait]) -> None:
    """Delete all hints that a run may have.

    Args:
        store: where it is.
        run: its id.
        start: of the instance.
        waits: those that have begun.
    """
    for stored in await _of(store, run, start, waits):
        await store.delete(stored.name, stored.generation)


async def newest(store: Store, run: str, start: Start, waits: list[Wait]) -> Timer | None:
    """The hint of the last park, which says what the run waits for; arguments as of `clear`."""
    found = await _of(store, run, start, waits)
    return await read(store, max(found, key=lambda stored: stored.updated)) if found else None


async def _of(store: Store, run: str, start: Start, waits: list[Wait]) -> list[Stored]:
    places: list[tuple[str, float | None]] = [("", None), ("", start.deadline or None)]
    places += [(wait.path, wait.due) for wait in waits if wait.due is not None]
    if start.debounce is not None:
        places.append((DEBOUNCE_PATH, start.debounce.due))
    read = [
        await store.read(name_of(run, start.instance, path, due))
        for path, due in dict.fromkeys(places)
    ]
    return [stored for stored in read if stored is not None]


def unneeded(marker: Marker, instance: str, waiting: list[Wait]) -> bool:
    """Whether the hint that the marker names is of no open wait of this instance.

    Args:
        marker: of the run.
        instance: that is carried.
        waiting: its waits that have begun and have no outcome.
    """
    open_hints = {name_of(marker.run, instance, wait.path, wait.due) for wait in waiting}
    return marker.timer not in open_hints


def is_past(marker: Marker, now: float) -> bool:
    """Whether the hint that the marker names is due."""
    return bool(marker.timer) and names.timer_due(marker.timer) <= moments.stamp(now)


async def read(store: Store, stored: Stored) -> Timer | None:
    """The record in a listed hint; None if it is gone, or is no hint."""
    return await record(store, stored, _timer)


class Promoted(NamedTuple):
    """What became of a hint that is due.

    Attributes:
        woken: the run has a marker now, and had none before.
        later: the hint stands for this time now, since starts went on to come for the run.
    """

    woken: bool = False
    later: float | None = None


async def promote(store: Store, stored: Stored) -> Promoted:
    """Wake the run of a hint that is due, unless it has a marker or is held back for longer."""
    hint = await read(store, stored)
    if hint is None or await store.read(names.marker(hint.queue, hint.run)) is not None:
        return Promoted()
    if hint.path == DEBOUNCE_PATH:
        answer = await debouncing.held_back(store, hint.run, hint.instance)
        if isinstance(answer, Parked) and await _postpone(store, stored, hint, answer):
            return Promoted(later=answer.due)
        if isinstance(answer, Closed):
            await _drop(store, stored)
            return Promoted()
    marker = Marker(
        run=hint.run, instance=hint.instance, workflow=hint.workflow, nonce=store.system.token(),
        queue=hint.queue, version=hint.version, why="wake", created=hint.created,
        timer=stored.name, timer_generation=stored.generation, pin=hint.pin,
    )  # fmt: skip
    woken = isinstance(await markers.create(store, marker), Written)
    if woken:
        await markers.ring(store, names.queue_bell(hint.queue), store.system.token())
    return Promoted(woken)


async def _postpone(store: Store, stored: Stored, hint: Timer, parked: Parked) -> bool:
    """Put a hint for a later time in the place of one that is due; False: it is the same.

    Others may do so too: whatever time they have read, a hint for it is there before this one goes.
    """
    name = name_of(hint.run, hint.instance, parked.path, parked.due)
    if name == stored.name:
        return False
    later = msgspec.structs.replace(
        hint, nonce=store.system.token(), due=parked.due, waits_for=parked.why
    )
    await store.create(name, records.encode(later), nonce=later.nonce, read_back=False)
    await _drop(store, stored)
    return True


async def _drop(store: Store, stored: Stored) -> None:
    """Delete a hint that is of no use; one that stays costs a look."""
    with contextlib.suppress(StoreError):
        await store.delete(stored.name, stored.generation)
