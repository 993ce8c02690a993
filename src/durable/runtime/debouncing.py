"""Starts with a debounce key: the run begins once they have been quiet, with the last request.

The first start makes an ordinary run, of which the key's claim tells (see `keyed`). Its `start`
says until when it is held back, and collects: each further start puts its own request there by
compare-and-swap. A worker that takes the run parks it. While starts go on to come, only the hint
that would wake it moves (see `timers`). When it is due, whoever takes it then *closes* it by the
same compare-and-swap, and only then reads the request. So a start either gets in before the run
is closed, or finds it closed and opens the next one: none is lost.

A start that loses the compare-and-swap to another start needs no second try: the other was
recorded while this one was under way, so it may count as the later of the two. This is why a
burst on one key, which a bucket allows one write a second, does not form a line.
"""

from __future__ import annotations

from functools import partial

import msgspec

from durable import catalog
from durable.catalog import Contention
from durable.protocol import moments, names, queues, records
from durable.protocol.queues import DEBOUNCE_PATH
from durable.protocol.records import NEVER, Start, Wait
from durable.runtime import keyed, starting
from durable.runtime.closing import Parked
from durable.runtime.facts import CorruptFact, decode_start, read_cancel, read_start
from durable.runtime.keyed import Begin, Begun, Key
from durable.store import Refused, Store, Written


def key_of(start: Start) -> Key:
    """The key of a request that has one."""
    assert start.debounce is not None
    queue, code, key = start.queue, _code(start), start.debounce.key

    def is_of(other: Start) -> bool:
        known = other.debounce
        return known is not None and (other.queue, _code(other), known.key) == (queue, code, key)

    return Key(names.debounce_key(queue, code, key), is_of, _is_closed)


def _code(start: Start) -> str:
    """A request for one version of a workflow is not replaced by one for another."""
    return names.of_version(start.workflow, start.pin) if start.pin else start.workflow


async def _is_closed(store: Store, run: str, start: Start) -> bool:
    """A cancelled one ends, without the request of whoever comes now."""
    return not start.is_collecting or await read_cancel(store, run, start.instance) is not None


# -- starting -------------------------------------------------------------------------------------


async def start(store: Store, run: str, start: Start, *, begin: Begin = starting.start) -> Begun:
    """Start the run, or put its request in the place of that of a run that has not begun.

    Raises:
        CorruptFact: the claim is damaged.
        StoreUnavailable: it may have started; ask again.
    """
    key = key_of(start)
    contention = Contention(store, key.claim)
    while True:
        begun = await keyed.start(store, run, start, key, begin=partial(_begin, begin))
        if begun.start.nonce == start.nonce:
            return begun
        joined = await _join(store, begun.run, start, key)
        if joined is not None:
            return Begun(begun.run, joined)
        if begun.run == run:  # it is closed, and its id can mean no other
            stored = await store.read(names.start(run))
            return begun if stored is None else Begun(run, decode_start(stored))
        await contention.lost()


async def _begin(begin: Begin, store: Store, run: str, start: Start) -> Written | Refused:
    """Make what is missing of the run. One that was parked has a hint whenever it has no marker.

    Nothing is missing of one that is over: else each start under its id would wake it.
    """
    stored = await store.read(names.start(run))
    if stored is not None:
        there = decode_start(stored)
        parked = names.wait(run, there.instance, DEBOUNCE_PATH)
        over = names.result(run, there.instance)
        for name in (parked, names.marker(there.queue, run), over, parked):
            if await store.read(name) is not None:
                return Refused(stored)
    return await begin(store, run, start)


async def _join(store: Store, run: str, asked: Start, key: Key) -> Start | None:
    """The `start` of the run that now does what was asked for; None: it is closed."""
    stored = await store.read(names.start(run))
    there = None if stored is None else decode_start(stored)
    if there is None or not _collects(there, key):
        return None
    mine = _in_the_place_of(there, asked)
    written = await catalog.put(
        store, names.start(run), stored, records.encode(mine), nonce=mine.nonce
    )
    if isinstance(written, Refused):
        mine = mine if written.current is None else decode_start(written.current)
        if written.current is None or not _collects(mine, key):
            return None
    # After the write: whoever cancels from now on cancels what was asked for here, too.
    return None if await read_cancel(store, run, mine.instance) is not None else mine


def _collects(start: Start, key: Key) -> bool:
    return not start.tombstone and start.is_collecting and key.is_of(start)


def _in_the_place_of(there: Start, asked: Start) -> Start:
    """The run stays what it is, and keeps its place among those that wait."""
    assert there.debounce is not None
    assert asked.debounce is not None
    debounce = queues.moved(there.debounce, asked.debounce)
    later = debounce.due - asked.debounce.due
    return msgspec.structs.replace(
        asked, instance=there.instance, created=there.created, debounce=debounce,
        deadline=asked.deadline + later if asked.deadline else NEVER,
    )  # fmt: skip


# -- beginning ------------------------------------------------------------------------------------


class Changed(msgspec.Struct, frozen=True):
    """The run is not the one any more whose facts were read."""


async def close(store: Store, run: str, start: Start) -> Start | Parked | Changed:
    """The request that counts, from now on for good; or until when the run is held back."""
    contention = Contention(store, names.start(run))
    while True:
        stored = await store.read(names.start(run))
        there = None if stored is None else decode_start(stored)
        if there is None or there.tombstone or there.instance != start.instance:
            return Changed()
        if there.debounce is None or there.debounce.closed:
            return there
        parked = _still_held_back(store, there)
        if parked is not None:
            await _begin_wait(store, run, there)
            return parked
        debounce = msgspec.structs.replace(there.debounce, closed=True)
        closed = msgspec.structs.replace(there, debounce=debounce, nonce=store.system.token())
        body = records.encode(closed)
        written = await catalog.put(store, names.start(run), stored, body, nonce=closed.nonce)
        if isinstance(written, Written):
            return closed
        await contention.lost()


class Closed(msgspec.Struct, frozen=True):
    """The run is not held back any more, and whoever closed it had its marker."""


async def held_back(store: Store, run: str, instance: str) -> Parked | Closed | None:
    """Until when an instance that is parked is held back now; None: somebody must look at it.

    That time only grows, so until then there is nothing to do.
    """
    try:
        start = await read_start(store, run)
    except CorruptFact:
        return None
    if start is None or start.tombstone or start.instance != instance:
        return None
    if start.debounce is not None and start.debounce.closed:
        return Closed()
    return _still_held_back(store, start)


def _still_held_back(store: Store, start: Start) -> Parked | None:
    held = start.debounce
    if held is None or held.closed or held.due <= store.now():
        return None
    return Parked(DEBOUNCE_PATH, held.due, why(start))


async def _begin_wait(store: Store, run: str, start: Start) -> None:
    """A marker may only go once a fact other than `start` is there."""
    assert start.debounce is not None
    token, now = store.system.token(), store.now()
    wait = Wait(DEBOUNCE_PATH, "debounce", start.debounce.key, 0, token, now)
    name = names.wait(run, start.instance, DEBOUNCE_PATH)
    await store.create(name, records.encode(wait), nonce=token, read_back=False)


def why(start: Start) -> str:
    """What a run waits for that is held back."""
    assert start.debounce is not None
    due = moments.second(round(start.debounce.due))
    return f"for further starts with debounce key {start.debounce.key!r}, until {due}"
