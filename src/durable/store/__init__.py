"""The store port: six verbs on named objects, every mutation conditional.

A `Backend` is one way to keep objects (memory, SQLite, GCS). It makes one attempt per call and
tells three things apart: applied, refused by the precondition (`None` or `False`), and not
answered (`StoreUnavailable`: it may have been applied, now or later).

`Store` turns a backend into what the protocol stands on (promises P7 and P8):

- An unanswered conditional write is repeated with the same precondition until it is known to be
  applied or refused. Each logical write has one nonce, the same on every repetition, in the
  object's metadata; after a refusal the store reads back, and a write whose nonce is among the
  last eight writers' is ours. So above this line "lost" always means somebody else.
- `Written.first` says that the very first attempt was acknowledged: nothing of this write can
  still be under way.

Lists carry metadata, and the body too when it is small (`INLINE_BYTES_MAX`), so one list reads
a whole run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import NamedTuple, Protocol

import anyio
import msgspec

from durable.errors import NotFound, StoreUnavailable
from durable.system import System

INLINE_BYTES_MAX = 4096  # GCS gives an object 8 KiB of custom metadata in all
WRITERS_KEPT = 8  # nonces of the last writers of a register, newest first
BACKOFF_MIN = 0.05  # seconds; doubles up to
BACKOFF_MAX = 5.0  # seconds


class Stored(msgspec.Struct, frozen=True):
    """An object as the store holds it.

    `created` and `updated` are seconds since the epoch by the store's clock. Of an object that
    was replaced `created` may be either time: a bucket knows that of the generation alone.
    `generation` is unique, compared for equality only. `body` is None only in lists: too large,
    or written with `inline=False`.
    """

    name: str
    generation: int
    created: float
    updated: float
    meta: dict[str, str]
    body: bytes | None


class Written(msgspec.Struct, frozen=True):
    """The write is ours. `first`: acknowledged at the first attempt."""

    generation: int
    updated: float
    first: bool = True


class Refused(msgspec.Struct, frozen=True):
    """Somebody else was there. `current` is what stands there now, None if nothing does."""

    current: Stored | None


class Page(msgspec.Struct, frozen=True):
    """Part of a list, in byte order of names; `token` asks for the next part, None at the end."""

    items: list[Stored]
    token: str | None


class Within(NamedTuple):
    """Names from `start` on and before `end`; either may be empty, which is no bound."""

    start: str = ""
    end: str = ""


EVERYTHING = Within()


class Pace(msgspec.Struct, frozen=True):
    """How often to ask a store, in seconds between two calls of a kind.

    `bell`: gets of a bell. `busy`: lists while there is work. `slow`: lists that find what no
    bell announced. `write`: writes of one object that is written again and again.
    """

    bell: float
    busy: float
    slow: float
    write: float


LOCAL_PACE = Pace(bell=0.05, busy=1.0, slow=5.0, write=0.0)  # a call costs microseconds
# A list costs money, and an object takes one write a second.
REMOTE_PACE = Pace(bell=1.0, busy=5.0, slow=60.0, write=1.0)


class Backend(Protocol):
    """One attempt per call, from any event loop of any thread.

    Attributes:
        pace: how often to poll.
        boot: the boot of the machine that `now` belongs to: leases of another boot are dead.
            Empty where the store's time outlives every machine.
        lock_folder: where the lock files of workers live, made by whoever locks; None if the
            store has no place for them.

    Raises:
        StoreUnavailable: no answer; the call may have been applied, or may be later.
        StoreRefused: a definite no that repeating does not change.
    """

    pace: Pace = REMOTE_PACE
    boot: str = ""
    lock_folder: str | None = None

    async def check(self) -> None:
        """Refuse a place whose settings keep objects from being replaced or deleted."""
        return  # only a bucket has such settings

    async def create(
        self, name: str, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None: ...

    async def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None: ...

    async def read(self, name: str) -> Stored | None: ...

    async def list(self, prefix: str, token: str | None, within: Within = EVERYTHING) -> Page: ...

    async def delete(self, name: str, generation: int) -> bool: ...

    async def copy(self, source: str, generation: int, name: str) -> Written | None:
        """Create `name` as that generation of `source`, metadata included, on the store's side."""
        ...

    def now(self) -> float:
        """The store's present time, seconds since the epoch; can only be late, never early."""
        ...

    async def aclose(self) -> None: ...


class Store:
    """The port that the runtime and the client use.

    Args:
        backend: where the objects are.
        patience: seconds for which an unanswered call is repeated before `StoreUnavailable`
            goes up; None repeats until cancelled (a worker that holds a lease).
        before_write: awaited before each attempt of a mutation, the repeated ones too: returns
            when the caller may still write.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        system: System | None = None,
        patience: float | None = 30.0,
        before_write: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.backend = backend
        self.system = system or System()
        self.patience = patience
        self._before_write = before_write

    @property
    def pace(self) -> Pace:
        """How often polling this store is reasonable."""
        return self.backend.pace

    def patient(
        self,
        patience: float | None,
        *,
        before_write: Callable[[], Awaitable[None]] | None = None,
    ) -> Store:
        """The same store with another patience, in seconds; None is for ever."""
        before_write = before_write or self._before_write
        return Store(self.backend, system=self.system, patience=patience, before_write=before_write)

    def now(self) -> float:
        """The store's present time, seconds since the epoch."""
        return self.backend.now()

    async def check(self) -> None:
        """Ask whether runs can live here, before anything is written.

        Raises:
            StoreRefused: there is no such place, or it keeps what must be replaced and deleted.
        """
        again = _Again(self)
        while True:
            try:
                return await self.backend.check()
            except StoreUnavailable as e:
                await again.after(e)

    async def create(
        self,
        name: str,
        body: bytes,
        *,
        nonce: str,
        meta: dict[str, str] | None = None,
        inline: bool = True,
        read_back: bool = True,
    ) -> Written | Refused:
        """Create the object unless one of that name exists.

        `read_back=False` is for bells, where winning and losing are the same: a refusal costs
        no read and says nothing of what is there.
        """
        meta = {**(meta or {}), "nonce": nonce}
        again = _Again(self)
        while True:
            if self._before_write is not None:
                await self._before_write()
            try:
                written = await self.backend.create(name, body, meta, inline)
                if written is not None:
                    return written if again.first else _not_first(written)
                if not read_back:
                    return Refused(None)
                current = await self.backend.read(name)
            except StoreUnavailable as e:
                await again.after(e)
                continue
            if current is not None:
                return _not_first(current) if _is_ours(current, nonce, None) else Refused(current)
            await again.after(None)  # it vanished between the refusal and the read

    async def replace(
        self,
        name: str,
        generation: int,
        body: bytes,
        *,
        nonce: str,
        earlier: str = "",
        owner: str | None = None,
        meta: dict[str, str] | None = None,
        inline: bool = True,
    ) -> Written | Refused:
        """Compare-and-swap on the generation.

        Args:
            earlier: the `nonce` metadata of the object replaced: its last writers, kept so that
                they recognise their own writes after ours.
            owner: for a take or a renewal: the owner token; an object that carries it is ours
                whoever touched it since.
        """
        writers = " ".join([nonce, *earlier.split()][:WRITERS_KEPT])
        meta = {**(meta or {}), "nonce": writers}
        if owner is not None:
            meta["owner"] = owner
        again = _Again(self)
        while True:
            if self._before_write is not None:
                await self._before_write()
            try:
                written = await self.backend.replace(name, generation, body, meta, inline)
                if written is not None:
                    return written if again.first else _not_first(written)
                current = await self.backend.read(name)
            except StoreUnavailable as e:
                await again.after(e)
                continue
            if current is None:
                return Refused(None)
            if _is_ours(current, nonce, owner):
                return _not_first(current)
            if current.generation != generation:
                return Refused(current)
            await again.after(None)  # an earlier answer was lost before it was applied

    async def read(self, name: str) -> Stored | None:
        """The object with its body, or None if there is none."""
        again = _Again(self)
        while True:
            try:
                return await self.backend.read(name)
            except StoreUnavailable as e:
                await again.after(e)

    def list(self, prefix: str, within: Within = EVERYTHING) -> AsyncIterator[Stored]:
        """Every object whose name starts with `prefix`, in byte order, with small bodies.

        A caller may stop at any item; one page at a time is fetched.

        Args:
            within: the part of these names to list.
        """
        return _Listing(self, prefix, within)

    async def delete(self, name: str, generation: int) -> bool:
        """Delete that generation. True: it is gone. False: another generation is there."""
        again = _Again(self)
        while True:
            if self._before_write is not None:
                await self._before_write()
            try:
                if await self.backend.delete(name, generation):
                    return True
                current = await self.backend.read(name)
            except StoreUnavailable as e:
                await again.after(e)
                continue
            if current is None:
                return True
            if current.generation != generation:
                return False
            await again.after(None)

    async def copy(self, source: Stored, name: str) -> Written | Refused:
        """Create `name` with the content and metadata of that generation of `source`.

        The bytes stay on the store's side. A copy carries the source's nonce, so one whose answer
        was lost is recognised; `Refused`: another object is there.

        Raises:
            NotFound: that generation of the source is gone.
        """
        again = _Again(self)
        while True:
            try:
                written = await self.backend.copy(source.name, source.generation, name)
                if written is not None:
                    return written if again.first else _not_first(written)
                current = await self.backend.read(name)
            except StoreUnavailable as e:
                await again.after(e)
                continue
            if current is None:
                raise NotFound(f"the object {source.name!r} changed while it was being copied")
            if current.meta.get("nonce") == source.meta.get("nonce"):
                return _not_first(current)
            return Refused(current)

    async def aclose(self) -> None:
        await self.backend.aclose()

    async def page(
        self, prefix: str, token: str | None = None, within: Within = EVERYTHING
    ) -> Page:
        """One page of a list; `token` is the one of the page before."""
        again = _Again(self)
        while True:
            try:
                return await self.backend.list(prefix, token, within)
            except StoreUnavailable as e:
                await again.after(e)


class _Listing:
    """The items of all pages. No generator, so that leaving it early leaves nothing open."""

    def __init__(self, store: Store, prefix: str, within: Within) -> None:
        self._store = store
        self._prefix = prefix
        self._within = within
        self._items: Iterator[Stored] = iter(())
        self._token: str | None = None
        self._begun = False

    def __aiter__(self) -> _Listing:
        return self

    async def __anext__(self) -> Stored:
        while (item := next(self._items, None)) is None:
            if self._begun and self._token is None:
                raise StopAsyncIteration
            page = await self._store.page(self._prefix, self._token, self._within)
            self._items, self._token, self._begun = iter(page.items), page.token, True
        return item


class _Again:
    """Jittered back-off between the attempts of one call, until patience runs out."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._began = store.system.boot()
        self._attempts = 0

    @property
    def first(self) -> bool:
        return self._attempts == 0

    async def after(self, unanswered: StoreUnavailable | None) -> None:
        """Wait before the next attempt; raise `unanswered` when patience has run out.

        None: it was answered, but what it was refused for was gone when we looked.
        """
        system, patience = self._store.system, self._store.patience
        delay = system.uniform(0, min(BACKOFF_MAX, BACKOFF_MIN * 2 ** min(self._attempts, 16)))
        self._attempts += 1
        if patience is not None and system.boot() - self._began + delay > patience:
            raise unanswered or StoreUnavailable(
                "the object changed between every attempt and the look at it",
                hint="Something writes and deletes it all the time; ask again later.",
            )
        await anyio.sleep(delay)


def _not_first(there: Written | Stored) -> Written:
    return Written(there.generation, there.updated, first=False)


def _is_ours(current: Stored, nonce: str, owner: str | None) -> bool:
    if nonce in current.meta.get("nonce", "").split():
        return True
    return owner is not None and current.meta.get("owner") == owner
