"""Purging: what is recorded of runs that are over, removed for good.

A tombstone in the place of `start` comes first, by compare-and-swap: from then on there is no
such run, whatever is still found of it, and a late write for the old instance hits a folder that
nothing names. Then the folder goes, and last the run's entry in the history, by which whoever
purges again finds what a dead process left. Tombstones stay: their id may be used again.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable

import msgspec

from durable.client import offspring, reading
from durable.errors import Conflict, NotFound
from durable.protocol import moments, names, records
from durable.protocol.records import History, Start
from durable.runtime import flags, keys, markers, singletons, timers
from durable.runtime.admission import lock_wait
from durable.runtime.branches import map_in
from durable.runtime.children import wake_parent
from durable.runtime.facts import CorruptFact, Facts, decode_result, load
from durable.runtime.reading import record
from durable.store import Refused, Store, Stored

DELETES_AT_ONCE = 16

_history = msgspec.json.Decoder(History)


async def purge(store: Store, run: str, *, force: bool = False) -> int:
    """See `Client.purge`."""
    names.check_id(run)
    stored = await store.read(names.start(run))
    start = None if stored is None else reading.decode_start(run, stored)
    if start is not None and start.tombstone:  # somebody may have died while purging it
        await _settle(store, run, start)
        if removed := await _clear(store, run):
            return removed
    if stored is None or start is None or start.tombstone:
        raise NotFound(f"there is no run {run!r}", hint="`durable list` shows the runs", run=run)
    over = await reading.read_result(store, run, start.instance) is not None
    if not over and not force:
        raise Conflict(
            f"run {run!r} is not over: {await reading.read_status(store, run, start)}",
            hint="wait for it or cancel it first, or purge it with force",
            run=run,
        )
    if not await _bury(store, stored, start):
        raise Conflict(f"run {run!r} was changed by somebody else meanwhile", run=run)
    await _settle(store, run, start)
    return await _clear(store, run)


async def expired(store: Store, age: float) -> AsyncIterator[History]:
    """The history entries of runs that ended more than `age` seconds ago, oldest first."""
    until = store.now() - age
    last = moments.stamp(until)
    async for stored in store.list("history/"):
        if names.last_part(stored.name)[: len(last)] > last:
            return
        entry = await record(store, stored, _history)
        if entry is not None and entry.ended <= until:
            yield entry


async def purge_ended(store: Store, entry: History) -> int:
    """Remove what this entry stands for; of a run that was restarted since, the old instance.

    Returns:
        How many objects were removed, or 0 if the run has changed and is left alone.
    """
    run = entry.run
    stored = await store.read(names.start(run))
    start = None if stored is None else reading.decode_start(run, stored)
    if stored is not None and start is not None and not start.tombstone:
        if start.instance != entry.instance:
            folder = names.instance_folder(run, entry.instance)
            removed = await _delete(store, [s async for s in store.list(folder)])
            return removed + await _forget(store, run, entry.ended)
        if not await _bury(store, stored, start):
            return 0
    removed = await _delete(store, await _left(store, run))
    return removed + await _forget(store, run, entry.ended)


async def _bury(store: Store, stored: Stored, start: Start) -> bool:
    """Put a tombstone in the place of `start`; False: it changed meanwhile."""
    token = store.system.token()
    tombstone = msgspec.structs.replace(
        start, tombstone=True, nonce=token, input=msgspec.Raw(b"null"), tags={}
    )
    written = await store.replace(
        stored.name, stored.generation, records.encode(tombstone),
        nonce=token, earlier=stored.meta.get("nonce", ""),
    )  # fmt: skip
    return not isinstance(written, Refused)


async def _settle(store: Store, run: str, start: Start) -> None:
    """What a buried run still owes, as far as no worker has done it or could.

    Its folder is still there: it tells which children it had and what it waited for.
    """
    await markers.take_away(store, start.queue, run)  # whoever has it next finds the tombstone
    await flags.unflag(store, start.queue, run)
    facts = Facts(start)
    with contextlib.suppress(CorruptFact):  # what cannot be read is purged, too
        found = await load(store, run)
        if found is not None and found.start.tombstone:  # else the id is used again
            facts = found
    if start.parent is not None:
        await wake_parent(store, start.parent)
    await offspring.cancel(store, run, facts)
    waited = await singletons.end(store, run, start, lock_wait(facts))
    await timers.clear(store, run, start, [*facts.waits, *([] if waited is None else [waited])])
    await keys.end(store, run, start)


async def _clear(store: Store, run: str) -> int:
    """The folder of a buried run and the history entries of its instances.

    The results go last: they tell when the instances ended, so where their entries are.
    """
    listed = await _left(store, run)
    ended = [(s, at) for s in listed if (at := await _ended(store, run, s)) is not None]
    results = [stored for stored, _ in ended]
    removed = await _delete(store, [stored for stored in listed if stored not in results])
    for _, at in ended:
        removed += await _forget(store, run, at)
    return removed + await _delete(store, results)


async def _ended(store: Store, run: str, stored: Stored) -> float | None:
    """When the instance ended whose result this object is."""
    fact = names.parse_fact(run, stored.name)
    if fact is None or fact.kind != "result":
        return None
    full = stored if stored.body is not None else await store.read(stored.name)
    try:
        return None if full is None else decode_result(full).time
    except CorruptFact:
        return None  # its history entry stays until `gc` comes to it


async def _forget(store: Store, run: str, ended: float) -> int:
    entry = await store.read(names.history(moments.stamp(ended), run))
    return 0 if entry is None else int(await store.delete(entry.name, entry.generation))


async def _left(store: Store, run: str) -> list[Stored]:
    """What is left of a buried run. Its id may be used again by now: that instance stays.

    The folder first, `start` after it: whatever the list showed of a new instance, `start` named
    that one before.
    """
    start = names.start(run)
    listed = [s async for s in store.list(names.run_folder(run)) if s.name != start]
    stored = await store.read(start)
    there = None if stored is None else reading.decode_start(run, stored)
    if there is None or there.tombstone:
        return listed
    alive = names.instance_folder(run, there.instance)
    return [s for s in listed if not s.name.startswith(alive)]


async def _delete(store: Store, found: Iterable[Stored]) -> int:
    async def delete(stored: Stored) -> bool:
        return await store.delete(stored.name, stored.generation)

    return sum(await map_in(None, delete, found, DELETES_AT_ONCE))
