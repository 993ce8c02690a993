"""Starting a run for whoever takes it: its marker and its `start` side by side, then a ring."""

from __future__ import annotations

import contextlib
import hashlib

import anyio
import msgspec

from durable.errors import StoreUnavailable
from durable.protocol import names, records
from durable.protocol.records import Start
from durable.runtime import markers, slots
from durable.runtime.reading import decoded
from durable.runtime.together import both
from durable.store import Refused, Store, Written
from durable.system import System

ID_DIGITS = 20  # of a random id: 80 bits


_start = msgspec.json.Decoder(Start)


def random_id(system: System) -> str:
    """A fresh id for a run or an instance."""
    # Hex, so that `start` sorts behind every instance, and no id looks like a flag.
    return hashlib.sha256(system.token().encode()).hexdigest()[:ID_DIGITS]


async def start(store: Store, run: str, start: Start) -> Written | Refused:
    """Start the run unless its id exists; returns what became of `start`.

    Two writes in parallel, and one ring if the marker is new. A run of a limited queue gets a
    place in line instead of the marker, unless it is held back first. Either made for an id that
    turns out to exist stays: whoever takes it finds out.

    Raises:
        StoreUnavailable: it may have started; ask again with the same id.
    """
    marked, started = await both(
        _announcement(store, run, start),
        store.create(names.start(run), records.encode(start), nonce=start.nonce),
    )
    if isinstance(marked, Written):
        await announce(store, names.queue_bell(start.queue))
    elif isinstance(started, Refused):
        await _wake_if_unannounced(store, run, marked, started)
    return started


async def _wake_if_unannounced(store: Store, run: str, marked: Refused, started: Refused) -> None:
    """A restart that was cut off before its wake: the marker is still the old instance's.

    Whoever holds that one deletes it once the old instance is over, unless it is touched.
    """
    there = None if started.current is None else decoded(started.current, _start)
    if there is None or there.tombstone or there.limited:
        return
    if marked.current is None or marked.current.meta.get("instance") != there.instance:
        await markers.wake(store, run, there, nonce=store.system.token)


async def _announcement(store: Store, run: str, start: Start) -> Written | Refused:
    """What makes workers look at the run."""
    if not start.limited or start.is_collecting:
        return await markers.create(store, markers.for_start(run, start))
    pending = slots.pending_of(run, start, nonce=start.nonce)
    name = slots.pending_name(run, start)
    return await store.create(name, records.encode(pending), nonce=pending.nonce)


async def announce(store: Store, bell: str) -> None:
    """Ring. A lost ring costs at most one slow period: twice is enough trying."""
    hasty = store.patient(0)
    with contextlib.suppress(StoreUnavailable):
        try:
            await markers.ring(hasty, bell, store.system.token())
        except StoreUnavailable:
            await anyio.sleep(store.pace.bell)
            await markers.ring(hasty, bell, store.system.token())
