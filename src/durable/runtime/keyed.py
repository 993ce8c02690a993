"""Starts with a key: one run carries it at a time, and a start gives that run while it does.

The claim of the key names the run and holds its whole start request. It is made before the run
is: a run that carries the key begins only by what the claim says, so two starts cannot both make
one. Whoever meets a claim whose run is not there yet finishes the start, as its owner may have
died. Whether the run carries the key still is a fact of its own folder, so nobody has to free the
claim: it is taken over by compare-and-swap, and who ends the run removes it to be tidy.

Why a late start cannot slip in: a claim moves on only when its run carries the key no more. Then
`start` is there for good (purged runs leave a tombstone), so a create that comes late is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from durable import catalog
from durable.catalog import Contention
from durable.protocol import names, records
from durable.protocol.records import KeyClaim, Start
from durable.runtime import markers
from durable.runtime.facts import CorruptFact, decode_start
from durable.store import Refused, Store, Stored, Written

Begin = Callable[[Store, str, Start], Awaitable[Written | Refused]]
"""Makes a run, or what is missing of one that was begun."""

_claim = msgspec.json.Decoder(KeyClaim)


class Key(msgspec.Struct, frozen=True):
    """What starts have in common that give one run.

    Attributes:
        claim: the name of its object.
        is_of: whether a `start` says that its run carries the key, or did.
        is_over: whether a run of which that is true carries it no more.
    """

    claim: str
    is_of: Callable[[Start], bool]
    is_over: Callable[[Store, str, Start], Awaitable[bool]]


class Begun(NamedTuple):
    """The run that carries the key, and its `start`."""

    run: str
    start: Start


async def start(store: Store, run: str, start: Start, key: Key, *, begin: Begin) -> Begun:
    """Start the run unless its id exists, or another carries the key.

    Raises:
        CorruptFact: the claim is damaged.
        StoreUnavailable: it may have started; ask again with the same key.
    """
    contention = Contention(store, key.claim)
    while True:
        mine = await store.read(names.start(run))
        before = None if mine is None else decode_start(mine)
        if before is not None and not before.tombstone:
            return Begun(run, _there(await begin(store, run, start), start))
        stored = await store.read(key.claim)
        claim = None if stored is None else _decode(stored)
        if claim is None or await _has_ended(store, claim, key):
            claim = KeyClaim(
                run, start, store.system.token(), replaces="" if before is None else before.nonce
            )
            written = await catalog.put(
                store, key.claim, stored, records.encode(claim), nonce=claim.nonce
            )
            if isinstance(written, Refused):
                await contention.lost()
                continue
        begun = await _begin(store, claim, begin)
        if not begun.tombstone and key.is_of(begun):
            return Begun(claim.run, begun)
        await contention.lost()  # its id has come to mean another run meanwhile


async def end(store: Store, run: str, key: Key) -> None:
    """The run is over: remove the claim, unless it names another by now."""
    stored = await store.read(key.claim)
    if stored is None:
        return
    try:
        claim = _decode(stored)
    except CorruptFact:
        return  # the next start with the key tells
    if claim.run == run and await _has_ended(store, claim, key):
        await store.delete(stored.name, stored.generation)


async def _begin(store: Store, claim: KeyClaim, begin: Begin) -> Start:
    """Make the run of the claim, as far as it is not there; its `start` as it stands."""
    if claim.replaces:
        await _revive(store, claim)
    return _there(await begin(store, claim.run, claim.request), claim.request)


async def _revive(store: Store, claim: KeyClaim) -> None:
    """Put `start` in the place of the tombstone that the claim was made upon."""
    stored = await store.read(names.start(claim.run))
    if stored is None or decode_start(stored).nonce != claim.replaces:
        return
    body, nonce = records.encode(claim.request), claim.request.nonce
    written = await catalog.put(store, stored.name, stored, body, nonce=nonce)
    if isinstance(written, Written):
        # A worker may have seen the tombstone and be about to let the marker go.
        await markers.wake(store, claim.run, claim.request, nonce=store.system.token)


async def _has_ended(store: Store, claim: KeyClaim, key: Key) -> bool:
    """Whether the run of the claim carries the key no more. One not made yet is to be."""
    stored = await store.read(names.start(claim.run))
    if stored is None:
        return False
    start = decode_start(stored)
    if start.tombstone:
        return start.nonce != claim.replaces
    return not key.is_of(start) or await key.is_over(store, claim.run, start)


def _there(started: Written | Refused, asked: Start) -> Start:
    if isinstance(started, Written):
        return asked
    assert started.current is not None
    return decode_start(started.current)


def _decode(stored: Stored) -> KeyClaim:
    try:
        return _claim.decode(stored.body or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise CorruptFact(stored.name, str(e)) from e
