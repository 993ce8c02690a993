"""Taking the lock of a singleton, waiting for it, and waking who is next.

See durable.protocol.singletons. The order of looks keeps wake-ups from being lost: a waiter
makes its object, then looks at the lock once more, then lets its marker go; the holder records
its result, then lists the waiters, then lets its marker go.
"""

from __future__ import annotations

import msgspec

from durable import catalog
from durable.catalog import Contention
from durable.protocol import moments, names, records, singletons
from durable.protocol.records import LockRecord, LockRequest, Start, Wait, Waiter
from durable.protocol.singletons import LOCK_PATH
from durable.runtime import asking, markers, reading
from durable.runtime.facts import CorruptFact, read_start
from durable.store import Refused, Store, Stored, Written

DECODER = msgspec.json.Decoder(LockRecord)
_waiter = msgspec.json.Decoder(Waiter)
_wait = msgspec.json.Decoder(Wait)


def decode(stored: Stored) -> LockRecord:
    """The record in a lock.

    Raises:
        CorruptFact: it is none.
    """
    try:
        return DECODER.decode(stored.body or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise CorruptFact(stored.name, str(e)) from e


async def is_over(store: Store, run: str, instance: str) -> bool:
    """Whether that instance is over: it has a result, or `start` does not name it any more."""
    if await store.read(names.result(run, instance)) is not None:
        return True
    start = await read_start(store, run)
    return start is None or start.tombstone or start.instance != instance


async def peek(store: Store, key: str) -> LockRecord | None:
    """Who holds the lock; None: nobody does."""
    stored = await store.read(names.lock(key))
    lock = None if stored is None else decode(stored)
    return lock if lock is not None and not await is_free(store, lock) else None


async def is_mine(store: Store, run: str, start: Start, request: LockRequest) -> bool:
    """Whether the lock names this instance."""
    stored = await store.read(names.lock(request.key))
    lock = None if stored is None else decode(stored)
    return singletons.is_ours(lock, run, start.instance)


async def take(store: Store, run: str, start: Start, request: LockRequest) -> LockRecord | None:
    """Take the lock for this instance; None: it is ours. Else who holds it, or goes first.

    Raises:
        CorruptFact: the lock is damaged.
    """
    contention = Contention(store, names.lock(request.key))
    while True:
        stored = await store.read(names.lock(request.key))
        lock = None if stored is None else decode(stored)
        if singletons.is_ours(lock, run, start.instance):
            return None
        if lock is not None:
            if not await is_free(store, lock):
                return lock
            ahead = await wake_first(store, request.key, before=(run, start.instance))
            if ahead is not None:
                return _by(ahead, lock)
        mine = singletons.taken(
            request, run=run, instance=start.instance, workflow=start.workflow,
            nonce=store.system.token(), now=store.now(),
        )  # fmt: skip
        name, body = names.lock(request.key), records.encode(mine)
        if isinstance(await catalog.put(store, name, stored, body, nonce=mine.nonce), Written):
            return None
        await contention.lost()


def _by(waiter: Waiter, lock: LockRecord) -> LockRecord:
    return msgspec.structs.replace(
        lock, run=waiter.run, instance=waiter.instance, since=waiter.since, ttl=None
    )


async def is_free(store: Store, lock: LockRecord) -> bool:
    """Whether anybody may take it."""
    if singletons.is_free(lock, store.now(), over=False):
        return True
    return await is_over(store, lock.run, lock.instance)


# -- waiting --------------------------------------------------------------------------------------


async def begin_wait(store: Store, run: str, start: Start, request: LockRequest) -> Wait:
    """Claim the wait, whose deadline holds from now on whatever happens."""
    now = store.now()
    due = singletons.gives_up(request, now)
    wait = Wait(LOCK_PATH, "lock", request.key, 0, store.system.token(), now, due)
    name = names.wait(run, start.instance, LOCK_PATH)
    answer = await store.create(name, records.encode(wait), nonce=wait.nonce)
    if not isinstance(answer, Written) and answer.current is not None:
        wait = _wait.decode(answer.current.body or b"")
    return wait


async def stand(store: Store, run: str, start: Start, wait: Wait, due: float | None) -> None:
    """Be among the waiters, and say when the run looks by itself. Done again it changes nothing."""
    waiter = Waiter(wait.name, run, start.instance, start.created, store.system.token(), due)
    name, body = _waiter_name(wait.name, run, start), records.encode(waiter)
    written = await store.create(name, body, nonce=waiter.nonce)
    if isinstance(written, Refused) and written.current is not None:
        there = reading.decoded(written.current, _waiter)
        if there is None or (there.instance, there.due) != (start.instance, due):
            await catalog.put(store, name, written.current, body, nonce=waiter.nonce)


async def read_waiter(store: Store, stored: Stored) -> Waiter | None:
    """The record in a listed waiter; None if it is gone, or is none."""
    return await reading.record(store, stored, _waiter)


async def leave(store: Store, run: str, start: Start, wait: Wait) -> Wait:
    """Be among the waiters no more; the wait, with the time for which the run was parked last."""
    stored = await store.read(_waiter_name(wait.name, run, start))
    if stored is None:
        return wait
    waiter = reading.decoded(stored, _waiter)
    await store.delete(stored.name, stored.generation)
    return wait if waiter is None else msgspec.structs.replace(wait, due=waiter.due)


def _waiter_name(key: str, run: str, start: Start) -> str:
    """In the order of their starts."""
    return names.waiter(key, moments.stamp(start.created), run)


async def wake_first(
    store: Store, key: str, *, before: tuple[str, str] | None = None
) -> Waiter | None:
    """Wake the first waiter that is not over; None: there is none.

    Args:
        before: a run and its instance: only waiters ahead of it, and only if it waits itself or
            there are any.
    """
    async for stored in store.list(names.waiters(key)):
        waiter = await read_waiter(store, stored)
        if waiter is None:
            continue
        if before == (waiter.run, waiter.instance):
            return None
        if await is_over(store, waiter.run, waiter.instance):
            await store.delete(stored.name, stored.generation)
            continue
        start = await read_start(store, waiter.run)
        if start is not None:
            await markers.wake(store, waiter.run, start, nonce=store.system.token)
            return waiter
    return None


async def replace_holder(store: Store, held: LockRecord, run: str, start: Start) -> None:
    """Ask the holder to cancel, and everybody who waits ahead."""
    targets = [(held.run, held.instance)]
    mine = _waiter_name(held.key, run, start)
    async for stored in store.list(names.waiters(held.key)):
        waiter = await read_waiter(store, stored)
        if waiter is not None and stored.name < mine:
            targets.append((waiter.run, waiter.instance))
    for other, instance in targets:
        theirs = await read_start(store, other)
        if theirs is not None and theirs.instance == instance:
            if not await is_over(store, other, instance):
                await asking.cancel(store, other, theirs, f"replaced by run {run!r}")


# -- ending ---------------------------------------------------------------------------------------


async def end(store: Store, run: str, start: Start, wait: Wait | None) -> Wait | None:
    """The instance has its result: whoever is next gets the lock.

    Args:
        wait: for the lock, if it ever waited. It may have been woken as the first in line and
            have ended without the lock, so it passes the wake on.

    Returns:
        The wait, as of `leave`.
    """
    request = start.lock
    if request is None:
        return wait
    if wait is not None:
        wait = await leave(store, run, start, wait)
    stored = await store.read(names.lock(request.key))
    lock = None if stored is None else reading.decoded(stored, DECODER)
    if singletons.is_ours(lock, run, start.instance) or wait is not None:
        await wake_first(store, request.key)
    return wait


async def release(store: Store, key: str, *, force: bool) -> tuple[LockRecord | None, bool]:
    """Free a lock by hand; the lock as it was, and whether it is free now.

    A lock whose holder goes on is freed by force alone: its holder is asked to cancel first.
    """
    contention = Contention(store, names.lock(key))
    while True:
        stored = await store.read(names.lock(key))
        if stored is None:
            return None, True
        lock = decode(stored)
        if await is_free(store, lock):
            await wake_first(store, key)
            return lock, True
        if not force:
            return lock, False
        start = await read_start(store, lock.run)
        if start is not None and start.instance == lock.instance:
            await asking.cancel(store, lock.run, start, f"lock {key!r} was released by force")
        free = msgspec.structs.replace(lock, run="", instance="", nonce=store.system.token())
        written = await catalog.put(
            store, stored.name, stored, records.encode(free), nonce=free.nonce
        )
        if isinstance(written, Written):
            await wake_first(store, key)
            return lock, True
        await contention.lost()
