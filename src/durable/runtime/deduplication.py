"""Starts with a dedup key: of the runs of a queue that carry one key, one goes on.

The claim `queues/<queue>/keys/<key>` names the run and holds its whole start request. It is made
before the run is: a run that carries the key begins only by what the claim says, so two starts
cannot both make one. Whoever meets a claim whose run is not there yet finishes the start, as its
owner may have died. Whether a run is over is a fact of its own folder, so nobody has to free the
claim: it is taken over by compare-and-swap, and who ends the run removes it to be tidy.

Why a late start cannot slip in: a claim moves on only when its run is over. Then `start` is there
for good (purged runs leave a tombstone), so a create that comes late is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from durable import catalog
from durable.catalog import Contention
from durable.protocol import names, records
from durable.protocol.records import DedupClaim, Start
from durable.runtime import markers, starting
from durable.runtime.facts import CorruptFact, decode_start
from durable.store import Refused, Store, Stored, Written

Begin = Callable[[Store, str, Start], Awaitable[Written | Refused]]

_claim = msgspec.json.Decoder(DedupClaim)


class Begun(NamedTuple):
    """The run that carries the key, and its `start`."""

    run: str
    start: Start


async def start(store: Store, run: str, start: Start, *, begin: Begin = starting.start) -> Begun:
    """Start the run unless its id exists, or another that carries the key is not over.

    Args:
        begin: makes the run, or what is missing of one that was begun.

    Raises:
        CorruptFact: the claim is damaged.
        StoreUnavailable: it may have started; ask again with the same key.
    """
    name = names.dedup_key(start.queue, start.dedup_key)
    contention = Contention(store, name)
    while True:
        mine = await store.read(names.start(run))
        before = None if mine is None else decode_start(mine)
        if before is not None and not before.tombstone:
            return Begun(run, _there(await begin(store, run, start), start))
        stored = await store.read(name)
        claim = None if stored is None else _decode(stored)
        if claim is None or await _is_over(store, claim, start.dedup_key):
            claim = DedupClaim(
                run, start, store.system.token(), replaces="" if before is None else before.nonce
            )
            written = await catalog.put(
                store, name, stored, records.encode(claim), nonce=claim.nonce
            )
            if isinstance(written, Refused):
                await contention.lost()
                continue
        begun = await _begin(store, claim, begin)
        if _carries(begun, claim, start.dedup_key):
            return Begun(claim.run, begun)
        await contention.lost()  # its id has come to mean another run meanwhile


async def end(store: Store, run: str, start: Start) -> None:
    """The run is over: remove the claim, unless it names another by now."""
    if not start.dedup_key:
        return
    stored = await store.read(names.dedup_key(start.queue, start.dedup_key))
    if stored is None:
        return
    try:
        claim = _decode(stored)
    except CorruptFact:
        return  # the next start with the key tells
    if claim.run == run and await _is_over(store, claim, start.dedup_key):
        await store.delete(stored.name, stored.generation)


async def _begin(store: Store, claim: DedupClaim, begin: Begin) -> Start:
    """Make the run of the claim, as far as it is not there; its `start` as it stands."""
    if claim.replaces:
        await _revive(store, claim)
    return _there(await begin(store, claim.run, claim.request), claim.request)


async def _revive(store: Store, claim: DedupClaim) -> None:
    """Put `start` in the place of the tombstone that the claim was made upon."""
    stored = await store.read(names.start(claim.run))
    if stored is None or decode_start(stored).nonce != claim.replaces:
        return
    body, nonce = records.encode(claim.request), claim.request.nonce
    written = await catalog.put(store, stored.name, stored, body, nonce=nonce)
    if isinstance(written, Written):
        # A worker may have seen the tombstone and be about to let the marker go.
        await markers.wake(store, claim.run, claim.request, nonce=store.system.token)


async def _is_over(store: Store, claim: DedupClaim, key: str) -> bool:
    """Whether the run of the claim carries the key no more. One not made yet is to be."""
    stored = await store.read(names.start(claim.run))
    if stored is None:
        return False
    start = decode_start(stored)
    if start.tombstone:
        return start.nonce != claim.replaces
    if not _carries(start, claim, key):
        return True
    return await store.read(names.result(claim.run, start.instance)) is not None


def _carries(start: Start, claim: DedupClaim, key: str) -> bool:
    """Whatever instance the id means by now."""
    return not start.tombstone and (start.queue, start.dedup_key) == (claim.request.queue, key)


def _there(started: Written | Refused, asked: Start) -> Start:
    if isinstance(started, Written):
        return asked
    assert started.current is not None
    return decode_start(started.current)


def _decode(stored: Stored) -> DedupClaim:
    try:
        return _claim.decode(stored.body or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise CorruptFact(stored.name, str(e)) from e
