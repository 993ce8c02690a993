"""What lies under one folder by key: one entry, or all whose key starts with a prefix.

Also how a lost compare-and-swap is tried again: with ever longer pauses, and not for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
import msgspec

from durable.errors import StoreUnavailable, UsageError
from durable.protocol import primitives
from durable.store import WRITERS_KEPT, Refused, Store, Stored, Written

E = TypeVar("E")
S = TypeVar("S", bound=msgspec.Struct)

LOST_RACES_MAX = 50  # who loses so often is told
PAUSE_MIN = 0.02  # seconds; doubles up to
PAUSE_MAX_POLLS = 2  # times the store's shortest poll: in a bucket 2 s, locally 0.1 s


class Catalog(Generic[E]):
    """The entries of one kind.

    Args:
        store: where they are.
        folder: what their names start with.
        entry: makes an entry of an object with its body, given the store's present time.
            Raises UsageError for an object that is not of this kind.
    """

    def __init__(self, store: Store, folder: str, entry: Callable[[Stored, float], E]) -> None:
        self._store = store
        self._folder = folder
        self._entry = entry

    async def get(self, key: str) -> E | None:
        """What is there under that key; None if nothing is.

        Raises:
            InvalidId: nothing can be there.
            UsageError: what is there is damaged, or something else.
            StoreUnavailable: the store does not answer.
        """
        stored = await self._store.read(primitives.object_name(self._folder, key))
        return None if stored is None else self._entry(stored, self._store.now())

    def list(self, prefix: str = "") -> Entries[E]:
        """Those whose key starts with `prefix`, in the order of their names, by `async for`.

        Objects that are damaged are left out; `get` says what is wrong with them.

        Raises:
            InvalidId: no key can start like this.
        """
        return Entries(self._store, primitives.folder_prefix(self._folder, prefix), self._entry)


class Entries(Generic[E]):
    """An asynchronous iterator. No generator: it may be left at any item."""

    def __init__(self, store: Store, prefix: str, entry: Callable[[Stored, float], E]) -> None:
        self._store = store
        self._items = store.list(prefix)
        self._entry = entry

    def __aiter__(self) -> Entries[E]:
        return self

    async def __anext__(self) -> E:
        while True:
            listed = await anext(self._items)
            stored = listed if listed.body is not None else await self._store.read(listed.name)
            if stored is None:  # deleted since
                continue
            try:
                return self._entry(stored, self._store.now())
            except UsageError:
                continue


class Contention:
    """The pauses between lost compare-and-swaps of one operation."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._lost = 0

    async def lost(self) -> None:
        """Wait before the next try.

        Raises:
            StoreUnavailable: too many were lost.
        """
        self._lost += 1
        if self._lost >= LOST_RACES_MAX:
            raise StoreUnavailable(
                f"others changed {self._name} before each of {LOST_RACES_MAX} tries to change it",
                hint="an object takes about one write a second: spread the writes over more keys",
            )
        longest = PAUSE_MAX_POLLS * self._store.pace.bell
        await anyio.sleep(self._store.system.uniform(0, min(longest, PAUSE_MIN * 2**self._lost)))


def until_free(store: Store, stored: Stored) -> float:
    """Seconds until that object may be changed again where one takes so many writes a second."""
    pace = store.pace.write
    return max(0.0, min(pace, stored.updated + pace - store.now()))


async def put(
    store: Store, name: str, stored: Stored | None, body: bytes, *, nonce: str
) -> Written | Refused:
    """Write in the place of what was read: create if that was nothing, else compare-and-swap."""
    if stored is None:
        return await store.create(name, body, nonce=nonce)
    earlier = writers_of(stored)
    return await store.replace(name, stored.generation, body, nonce=nonce, earlier=earlier)


def writers_of(stored: Stored | None) -> str:
    """The nonces of the last writers of an object, as its metadata has them."""
    return "" if stored is None else stored.meta.get("nonce", "")


def with_writer(nonce: str, earlier: str) -> str:
    """The writers' nonces after one more write, as the store keeps them."""
    return " ".join([nonce, *earlier.split()][:WRITERS_KEPT])


def decode_record(kind: type[S], stored: Stored) -> S:
    """The record an object holds.

    Raises:
        UsageError: it is damaged, or no such record.
    """
    try:
        return msgspec.json.decode(stored.body or b"", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise UsageError(
            f"the object {stored.name} is damaged, or was not written by durable: {e}",
            hint="look at it in the store; delete it if nobody needs it",
        ) from e


def age(since: float, now: float) -> float:
    """Seconds from one store time to a later one; the present may be known late."""
    return max(0.0, now - since)
