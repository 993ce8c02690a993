"""Markers: `live/<queue>/<hash8>-<run>` says that a run needs a worker, or has one.

A run's lease is the pair (marker names the holder and its owner token; the holder's lease is
alive). Every change is a compare-and-swap. Two rules keep wake-ups from being lost:

- *Wake*: the fact first; then create the marker; if one is there, touch it (the same record
  under a fresh nonce). If the touch is refused, somebody changed the marker after our fact.
- *Let go*: know the marker's generation; then look at everything that could matter; then
  delete by that generation. So whatever was touched since is looked at again.

Nobody but the holder deletes a marker, and only after a fact other than `start` is in the
run's folder.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from durable.protocol import names, records
from durable.protocol.records import Marker, Start
from durable.runtime.reading import decoded
from durable.store import Refused, Store, Stored, Written

log = logging.getLogger("durable")

_decoder = msgspec.json.Decoder(Marker)


@dataclass
class Held:
    """A marker that names us. `generation` moves when others touch it; the holder decides.

    Attributes:
        writers: the nonces of its last writers, for the next replacement.
        fresh: we created it and `start`, both acknowledged at the first attempt.
        first: nobody held the run before us. Whoever did may have begun without a trace, and be
            at it still, so an empty folder alone does not make ours the first epoch.
        clean: whoever held it before let go of it in good order: nothing it sent is under way.
    """

    marker: Marker
    generation: int
    writers: str
    fresh: bool = False
    first: bool = False
    clean: bool = False

    @property
    def name(self) -> str:
        return names.marker(self.marker.queue, self.marker.run)


def for_start(run: str, start: Start, *, holder: str = "", owner: str = "") -> Marker:
    """The marker of a new run; held at once when it is to run in this process."""
    return Marker(
        run=run,
        instance=start.instance,
        workflow=start.workflow,
        nonce=start.nonce,
        queue=start.queue,
        version=start.version,
        created=start.created,
        holder=holder,
        owner=owner,
        request=start,
        pin=start.pin,
    )


async def create(store: Store, marker: Marker) -> Written | Refused:
    """Create the marker unless the run has one."""
    return await store.create(
        names.marker(marker.queue, marker.run),
        records.encode(marker),
        nonce=marker.nonce,
        meta=_meta(marker),
    )


async def read(store: Store, queue: str, run: str) -> tuple[Stored, Marker] | None:
    """The marker as it stands now; None if there is none."""
    stored = await store.read(names.marker(queue, run))
    marker = None if stored is None else decode(stored)
    return None if stored is None or marker is None else (stored, marker)


def decode(stored: Stored) -> Marker | None:
    """The record in a marker that came with its body; None if it is no marker."""
    return decoded(stored, _decoder)


async def take(
    store: Store, stored: Stored, marker: Marker, *, holder: str, owner: str, nonce: str
) -> Held | None:
    """Become the holder of that generation of the marker; None: somebody else was quicker.

    The holder's lease must be acknowledged before.
    """
    mine = msgspec.structs.replace(marker, holder=holder, owner=owner, nonce=nonce)
    written = await _replace(store, stored, mine)
    if isinstance(written, Refused):
        return None
    first = not marker.holder and marker.why == "start"
    clean = first or (not marker.holder and marker.why == "wake")
    return Held(mine, written.generation, _writers(stored, nonce), first=first, clean=clean)


async def give_back(
    store: Store,
    held: Held,
    *,
    why: Literal["drain", "takeover"] = "drain",
    nonce: Callable[[], str],
) -> None:
    """Make the run unowned, so that another worker takes it at once, for that reason."""
    while True:
        mark = nonce()
        unowned = msgspec.structs.replace(
            held.marker, holder="", owner="", nonce=mark, why=why, request=None
        )
        written = await store.replace(
            held.name,
            held.generation,
            records.encode(unowned),
            nonce=mark,
            earlier=held.writers,
            meta=_meta(unowned),
        )
        if isinstance(written, Written) or not _still_mine(written.current, held):
            return


async def let_go(store: Store, held: Held, look: Callable[[], Awaitable[bool]]) -> bool:
    """Delete the marker; True if it is ours no more, False if a look found something to do.

    The caller has looked at the facts since it learned `held.generation`. If the marker was
    touched since, `look()` says whether there is something new.
    """
    while not await store.delete(held.name, held.generation):
        if not _still_mine(await store.read(held.name), held):
            return True
        if await look():
            return False
    return True


async def wake(
    store: Store,
    run: str,
    start: Start,
    *,
    flagged: bool = False,
    nonce: Callable[[], str],
    slot: int = -1,
) -> None:
    """Make sure that somebody looks at the run after this moment; then ring.

    Args:
        flagged: it has an attention hint.
        slot: of its queue, that it was given.
    """
    while True:
        mark = nonce()
        fresh = msgspec.structs.replace(
            for_start(run, start), nonce=mark, why="wake", flagged=flagged, slot=slot
        )
        written = await create(store, fresh)
        if isinstance(written, Written):
            return await ring(store, names.queue_bell(start.queue), nonce())
        current = written.current
        if current is None:
            continue
        there = decode(current)
        if there is None:
            return None  # a stranger's object blocks this run: `durable list` shows what is there
        marker = msgspec.structs.replace(there, nonce=mark, slot=max(slot, there.slot))
        touched = await _replace(store, current, marker)
        if isinstance(touched, Written) or touched.current is not None:
            bell = names.worker_bell(marker.holder) if marker.holder else None
            return await ring(store, bell or names.queue_bell(start.queue), nonce())


async def discard_damaged(store: Store, queue: str, run: str) -> None:
    """Delete the run's marker if nobody can read it. Only for people, who know who runs it."""
    stored = await store.read(names.marker(queue, run))
    if stored is not None and stored.body is not None and not records.is_marker(stored.body):
        await store.delete(stored.name, stored.generation)


async def replace_unowned(store: Store, stored: Stored, marker: Marker) -> bool:
    """Put an unowned marker in the place of a dead holder's; False: somebody was quicker."""
    return isinstance(await _replace(store, stored, marker), Written)


async def unown(
    store: Store, stored: Stored, marker: Marker, *, why: Literal["drain", "takeover"]
) -> bool:
    """Take the run from its holder, dead or alive, and tell both sides; False: it has changed.

    A holder that lives finds its marker gone from it and lets the run be.
    """
    token = store.system.token()
    unowned = msgspec.structs.replace(marker, holder="", owner="", why=why, nonce=token)
    if not await replace_unowned(store, stored, unowned):
        return False
    await ring(store, names.queue_bell(marker.queue), token)
    await ring(store, names.worker_bell(marker.holder), token)
    return True


async def take_away(store: Store, queue: str, run: str) -> None:
    """Take the run from whoever holds it, if anybody does; see `unown`."""
    while (found := await read(store, queue, run)) is not None:
        if not found[1].holder or await unown(store, *found, why="drain"):
            return


def names_take(stored: Stored | None, held: Held) -> bool:
    """Whether the marker is of this take. Told by a read: a list may be older than the take."""
    return stored is not None and stored.meta.get("owner") == held.marker.owner


async def ring(store: Store, bell: str, nonce: str) -> None:
    """Say that there is something new. A bell that rings already is enough."""
    await store.create(bell, b"{}", nonce=nonce, read_back=False)


def refresh(held: Held, stored: Stored) -> bool:
    """Adopt the generation of a marker that was just read; True if somebody has touched it.

    What was read may be older than our own last write. A generation adopted wrongly costs one
    refused write, after which the marker is read again.
    """
    known = held.generation
    return _still_mine(stored, held) and held.generation != known


def _still_mine(stored: Stored | None, held: Held) -> bool:
    if stored is None or not names_take(stored, held):
        return False
    held.generation = stored.generation
    held.writers = stored.meta.get("nonce", "")
    return True


async def _replace(store: Store, stored: Stored, marker: Marker) -> Written | Refused:
    return await store.replace(
        stored.name,
        stored.generation,
        records.encode(marker),
        nonce=marker.nonce,
        earlier=stored.meta.get("nonce", ""),
        owner=marker.owner or None,
        meta=_meta(marker),
    )


def _writers(stored: Stored, nonce: str) -> str:
    return f"{nonce} {stored.meta.get('nonce', '')}".strip()


def _meta(marker: Marker) -> dict[str, str]:
    """What a list must tell even when the body is too large to come with it."""
    meta = {
        "workflow": marker.workflow,
        "instance": marker.instance,
        "created": repr(marker.created),
    }
    if marker.pin:
        meta["pin"] = marker.pin
    if marker.holder:
        meta |= {"holder": marker.holder, "owner": marker.owner}
    return meta
