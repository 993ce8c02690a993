"""This process as a holder of leases: acquires them, attaches to them, keeps them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.abc

from durable import catalog
from durable.catalog import Contention
from durable.errors import DurableError, LeaseLost, LeaseRefused, LeaseTaken
from durable.leases import entries
from durable.leases.entries import Refuse, Taken
from durable.leases.lease import Lease
from durable.leases.upkeep import Upkeep
from durable.loops import IoThread, io_thread
from durable.protocol import durations, primitives, records, texts
from durable.protocol.durations import Duration
from durable.protocol.leases import TTL_DEFAULT, Terms
from durable.protocol.primitives import KEEP, LEASES, LeaseRecord
from durable.store import Refused, Store, Stored
from durable.system import label as own_label

WAIT_DEFAULT = 60.0  # seconds for which `hold` waits for a lease, if it waits
POLL_MAX = 1.0  # seconds between two looks at a lease that is waited for
LET_GO_TIMEOUT = 3.0  # seconds for the release when the body has failed: two writes' worth

StateFn = Callable[[Any], Any]
R = TypeVar("R")


class Wanted(NamedTuple):
    """The lease that is wanted, as `Client.lease` and `Client.hold` describe it."""

    key: str
    ttl: Duration | Terms = TTL_DEFAULT
    label: str | None = None
    state_fn: StateFn | None = None


class LeaseHolder:
    """Acquires leases and keeps them in the background.

    Args:
        store: where they are.
        tasks: gives the task group of the open client; raises UsageError where there is none.
        thread: gives the thread that keeps leases, where no code of this event loop can block
            their renewal; None keeps them in the task group, for tests on a virtual clock.
    """

    def __init__(
        self,
        store: Store,
        tasks: Callable[[], anyio.abc.TaskGroup],
        *,
        thread: Callable[[], IoThread] | None = io_thread,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._thread = thread
        self._kept: set[Upkeep] = set()

    def close(self) -> None:
        """Keep nothing any longer: what is still held runs out."""
        for upkeep in list(self._kept):
            upkeep.stop()

    async def acquire(self, wanted: Wanted, *, renew: bool = True) -> Lease | Taken | Refuse:
        """Results and errors as of `Client.lease`."""
        key, ttl, label, state_fn = wanted
        token = self._store.system.token()
        terms = ttl if isinstance(ttl, Terms) else Terms.of(durations.seconds(ttl))
        label = own_label() if label is None else texts.check(label, "label")

        def next_record(stored: Stored | None) -> LeaseRecord | Taken | Refuse:
            now, boot = self._store.now(), self._store.backend.boot
            if stored is not None:
                entry = entries.of_stored(stored, now, boot=boot)
                if entry.status == "held":
                    return Taken(entry)
            current = None if stored is None else catalog.decode_record(LeaseRecord, stored)
            state = entries.state_of(current)
            new = KEEP if state_fn is None else state_fn(state)
            if isinstance(new, Refuse):
                return new
            return primitives.acquired(
                current, key=key, holder=primitives.digest_of(token), label=label, terms=terms,
                boot=boot, nonce=self._store.system.token(),
                state=primitives.encode_value(
                    state if new is KEEP else new, what=f"the state of lease {key!r}"
                ),
            )  # fmt: skip

        return await self._enter(key, token, next_record, renew=renew)

    async def attach(self, key: str, token: str, *, renew: bool = True) -> Lease:
        """Arguments, results and errors as of `Leases.attach`."""

        def next_record(_: Stored | None) -> LeaseRecord | LeaseLost:
            return LeaseLost(
                f"lease {key!r} is not held with this token: it was released, or taken by "
                "somebody else, or never was",
                hint="acquire it with `client.lease`, under a new epoch",
            )

        entered = await self._enter(key, token, next_record, renew=renew)
        if isinstance(entered, LeaseLost):
            raise entered
        return entered

    @contextlib.asynccontextmanager
    async def hold(self, wanted: Wanted, *, waiting: float) -> AsyncIterator[Lease]:
        """Errors as of `Client.hold`; `waiting` is for how many seconds."""
        lease = await self._wait_for(wanted, anyio.current_time() + waiting)
        upkeep = lease._upkeep
        scope = anyio.CancelScope()
        upkeep.on_lost = scope.cancel
        if upkeep.lost:  # meanwhile
            scope.cancel()
        try:
            with scope:
                yield lease
            if not upkeep.ended:
                await lease.release()  # raises LeaseLost if that is why the block has ended
        except Exception as e:
            if scope.cancel_called and not isinstance(e, LeaseLost):
                raise upkeep.gone() from e
            raise
        finally:
            await _let_go(lease)
            upkeep.stop()

    async def _wait_for(self, wanted: Wanted, until: float) -> Lease:
        """Acquire it, looking again until the event loop's time `until`.

        Raises:
            LeaseTaken: somebody holds it all the time.
            LeaseRefused: the `state_fn` refused.
        """
        key, pause = wanted.key, self._store.pace.bell
        while True:
            got = await self.acquire(wanted)
            if isinstance(got, Lease):
                return got
            if isinstance(got, Refuse):
                raise LeaseRefused(
                    f"lease {key!r} was not acquired: {got.reason}", reason=got.reason
                )
            left = until - anyio.current_time()
            if left <= 0:
                raise LeaseTaken(
                    f"lease {key!r} is held by {got.by.label!r} ({got.by.holder}), "
                    f"epoch {got.by.epoch}",
                    hint="wait for it with `waiting=True`, or try again later",
                )
            # Jitter, so that those who wait do not all come at the same moment.
            await anyio.sleep(min(left, self._store.system.uniform(pause / 2, pause)))
            pause = min(POLL_MAX, pause * 1.5)

    async def _enter(
        self,
        key: str,
        token: str,
        next_record: Callable[[Stored | None], LeaseRecord | R],
        *,
        renew: bool,
    ) -> Lease | R:
        """Become the holder whose token this is, by compare-and-swap.

        `next_record` is asked for what to write in the place of a record that is not this
        holder's; a record that is, is renewed.
        """
        name = primitives.object_name(LEASES, key)
        holder = primitives.digest_of(token)
        tasks = self._tasks()  # before anything is written
        contention = Contention(self._store, name)
        stored = await self._store.read(name)
        while True:
            record = self._renewed(stored, holder) or next_record(stored)
            if not isinstance(record, LeaseRecord):
                return record
            sent = self._store.system.boot()
            body = records.encode(record)
            answer = await catalog.put(self._store, name, stored, body, nonce=record.nonce)
            if isinstance(answer, Refused):
                there = answer.current
            elif answer.first:
                # As reading it would show it.
                writers = catalog.with_writer(record.nonce, catalog.writers_of(stored))
                there = Stored(name, answer.generation, 0, 0, {"nonce": writers}, body)
            else:
                # It was applied, but when, and what has happened since? So we look.
                there = await self._store.read(name)
            upkeep = self._upkeep_of(there, record, since=sent, renewing=renew)
            if upkeep is not None and upkeep.held:
                self._kept.add(upkeep)
                keep = partial(self._keep, upkeep)
                if self._thread is not None:
                    self._thread().start(keep)
                else:
                    tasks.start_soon(keep)
                return Lease(upkeep, token)
            stored = there
            await contention.lost()

    def _upkeep_of(
        self, there: Stored | None, written: LeaseRecord, *, since: float, renewing: bool
    ) -> Upkeep | None:
        """For what stands there, if that is what we wrote, or others have written on top of it."""
        if there is None or written.nonce not in catalog.writers_of(there).split():
            return None
        record = catalog.decode_record(LeaseRecord, there)
        if record.holder != written.holder:
            return None
        return Upkeep(
            self._store, record, generation=there.generation,
            writers=catalog.writers_of(there), since=since, renewing=renewing,
        )  # fmt: skip

    def _renewed(self, stored: Stored | None, holder: str) -> LeaseRecord | None:
        """The next record of a lease that is held with our token; None if it is not."""
        if stored is None:
            return None
        record = catalog.decode_record(LeaseRecord, stored)
        if record.holder != holder:
            return None
        return primitives.renewal(
            record, nonce=self._store.system.token(), state=record.state,
            boot=self._store.backend.boot,
        )  # fmt: skip

    async def _keep(self, upkeep: Upkeep) -> None:
        try:
            await upkeep.run()
        finally:
            self._kept.discard(upkeep)


async def _let_go(lease: Lease) -> None:
    """After a body that did not end well: release, so that others need not wait for the ttl."""
    if lease._upkeep.over:
        return
    with anyio.move_on_after(LET_GO_TIMEOUT, shield=True), contextlib.suppress(DurableError):
        await lease.release()
