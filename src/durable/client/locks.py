"""The client's words for the locks of singletons: who holds them, who waits, freed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from urllib.parse import unquote

import msgspec

from durable.errors import LeaseTaken, NotFound
from durable.protocol import moments, names, singletons
from durable.protocol.names import check_id
from durable.runtime import reading
from durable.runtime import singletons as locks
from durable.store import Store, Stored


class LockSummary(msgspec.Struct, frozen=True):
    """The lock of a singleton as it stands.

    Attributes:
        key: its name.
        status: `held`; `free`: its last holder is over, or it was released.
        run: the id of the run that holds it; empty if it is free.
        workflow: of that run.
        since: when it was taken, in seconds since the epoch; None if it is free.
        until: when others may take it although it is held; None: never.
        waiters: the ids of the runs that wait for it, the first first.
    """

    key: str
    status: Literal["held", "free"]
    run: str
    workflow: str
    since: float | None
    until: float | None
    waiters: tuple[str, ...]


class Locks:
    """The locks of all singletons."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self) -> LockList:
        """All locks that are held or waited for, by key; to be iterated with `async for`."""
        return LockList(self._store)

    async def release(self, key: str, *, force: bool = False) -> None:
        """Free a lock, and wake who is next.

        A lock frees itself when its run is over. One that is held is freed by force alone: its
        run is asked to cancel, and others may go on at once, beside its clean-up.

        Raises:
            LeaseTaken: its run goes on, and `force` is not given.
            NotFound: there is no such lock.
        """
        check_id(key, what="key of a singleton")
        lock, is_free = await locks.release(self._store, key, force=force)
        if lock is None:
            raise NotFound(f"there is no lock {key!r}", hint="`durable leases` shows them")
        if not is_free:
            since = moments.second(round(lock.since))
            raise LeaseTaken(
                f"lock {key!r} is held by run {lock.run!r} since {since}, which goes on",
                hint=f"cancel that run, or both at once: `durable leases release {key} --force`",
                run=lock.run,
            )


class LockList:
    """An asynchronous iterator of LockSummary. No generator: it may be left at any item."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ready: Iterator[LockSummary] | None = None

    def __aiter__(self) -> LockList:
        return self

    async def __anext__(self) -> LockSummary:
        if self._ready is None:
            self._ready = iter(await self._read())
        for summary in self._ready:
            return summary
        raise StopAsyncIteration

    async def _read(self) -> list[LockSummary]:
        """One list, and a look at the run of each lock."""
        stored_locks: dict[str, Stored] = {}
        waiters: dict[str, list[str]] = {}
        async for stored in self._store.list(names.LOCKS):
            key, _, rest = stored.name[len(names.LOCKS) :].partition("/")
            if not rest:
                stored_locks[unquote(key)] = stored
            elif (waiter := await locks.read_waiter(self._store, stored)) is not None:
                waiters.setdefault(unquote(key), []).append(waiter.run)
        found = []
        for key, stored in stored_locks.items():
            summary = await self._summary(key, stored, tuple(waiters.get(key, ())))
            if summary is not None and (summary.status == "held" or summary.waiters):
                found.append(summary)
        return found

    async def _summary(
        self, key: str, stored: Stored, waiters: tuple[str, ...]
    ) -> LockSummary | None:
        full = await reading.with_body(self._store, stored)
        lock = None if full is None else reading.decoded(full, locks.DECODER)
        if lock is None:
            return None
        if await locks.is_free(self._store, lock):
            return LockSummary(key, "free", "", "", None, None, waiters)
        until = None if lock.ttl is None else singletons.expires(lock)
        return LockSummary(key, "held", lock.run, lock.workflow, lock.since, until, waiters)
