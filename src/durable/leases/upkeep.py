"""The upkeep of one held lease: renews it, writes what its holder wants, notices its loss.

It has the care of `durable.runtime.lease`, whose rules are the same: a write that is not answered
extends nothing and is repeated with the same precondition and nonce until it is known; a write
that is recognised on reading back proves that it was applied, not that the lease is still ours,
so the holder there is compared; past its deadline a holder that slept sends one more write, to
learn whether anybody has taken its place meanwhile.

What a refused write finds there may also be ours and changed: somebody else has written into the
state. Then the changes are applied again, on top of that.

It runs in a thread of its own kind (`durable.loops.io_thread`), so that a lease is renewed while
code blocks the holder's event loop; on a virtual clock it is a task of that loop. The two sides
share little: the list of pending changes, under a lock, and facts that are set at once. Each runs
callbacks in the other's event loop and never waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio

from durable import catalog
from durable.errors import LeaseLost, StoreRefused, UsageError
from durable.leases.changes import Change, Composed, End, compose
from durable.loops import caller
from durable.protocol import leases, primitives, records
from durable.protocol.leases import Terms
from durable.protocol.primitives import LEASES, LeaseRecord
from durable.store import Refused, Store, Stored, Written

_TICKS_PER_PERIOD = 4  # looks at the boot clock, which goes on while the machine sleeps
_SLEEP_MIN = 0.001  # seconds; a shorter one may not move a clock that floats
_ROOM = 0.25  # of the pace of writes, left to others after it: else a busy holder shuts them out


class Upkeep:
    """Keeps one lease from its acquisition to its end. Made in the event loop of its holder.

    Args:
        store: where the lease is; its patience does not count here, the lease's deadline does.
        record: what was acquired.
        generation: under which it stands.
        writers: the `nonce` metadata there.
        since: when that write was sent, on the boot clock.
        renewing: renew every ttl/3; else only when asked.

    Attributes:
        acquired: what was acquired: key, holder, epoch, label and ttl never change.
        record: the lease as last known, for its state.
        deadline: until when it is trusted, on the boot clock.
        lost: why it was lost; empty if it was not.
        ended: how the holder let go of it; empty if it has not.
        on_lost: called in the holder's event loop when it is lost.
    """

    def __init__(
        self,
        store: Store,
        record: LeaseRecord,
        *,
        generation: int,
        writers: str,
        since: float,
        renewing: bool,
    ) -> None:
        self.acquired = self.record = record
        self.lost = ""
        self.ended: End = ""
        self.on_lost: Callable[[], object] = lambda: None
        self._store = store.patient(None)
        self._system = store.system
        self._terms = Terms(record.ttl, record.margin)
        self._name = primitives.object_name(LEASES, record.key)
        self._generation = generation
        self._writers = writers
        self._own = bytes(record.state)
        self._renewing = renewing
        self._since = since
        self._paced = self._after_own_write()
        self._lock = threading.Lock()
        self._pending: list[Change] = []
        self._tell = caller()
        self._tell_renewal: Callable[[Callable[[], object]], bool] | None = None
        self._halted = False
        self._wake: anyio.Event
        self._scope: anyio.CancelScope | None = None
        self.deadline = leases.trusted_until(since, self._terms)

    # -- for the holder --------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Lost or let go of: nothing more is written."""
        return bool(self.lost or self.ended)

    @property
    def held(self) -> bool:
        """Whether the lease may be relied on at this moment."""
        return not self.over and self._system.boot() < self.deadline

    def gone(self) -> LeaseLost:
        """The error for whoever uses a lease that is over."""
        what = f"lease {self.acquired.key!r} (epoch {self.acquired.epoch})"
        if self.ended:
            return LeaseLost(f"{what} was {self.ended}", hint="acquire it again")
        return LeaseLost(
            f"{what} was lost: {self.lost}",
            hint="stop what it protected; write nothing more in its name",
        )

    async def write(self, change: Change) -> None:
        """Have a change written, and wait until it is.

        Cancelled before it is sent, it is not sent.

        Raises:
            LeaseLost: the lease is over.
            Exception: what the change itself raised.
        """
        with self._lock:
            if self.over:
                raise self.gone()
            self._pending.append(change)
        self._call_renewal(self._nudge)
        try:
            await change.done.wait()
        finally:
            with self._lock, suppress(ValueError):
                self._pending.remove(change)
        if change.error is not None:
            raise change.error

    def stop(self) -> None:
        """Write nothing more; unless it was let go of, the lease runs out."""
        with self._lock:
            if not self.over:
                self.lost = "its upkeep was stopped"
        self._halted = True
        self._call_renewal(self._cut)

    def _cut(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def _call_renewal(self, callback: Callable[[], object]) -> None:
        if self._tell_renewal is not None:  # else it looks at everything when it begins
            self._tell_renewal(callback)

    # -- the renewal -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the lease is over, or `stop`. No cancellation from around it ends it."""
        self._wake, self._tell_renewal = anyio.Event(), caller()
        try:
            with anyio.CancelScope(shield=True) as self._scope:
                if self._halted:  # `stop` sets before it looks, this looks after it has set
                    self._scope.cancel()
                while not self.over:
                    await self._until_due()
                    await self._write_pending()
        except Exception as e:  # noqa: BLE001  # whoever waits is told, whatever it is
            self._lose(f"its renewal failed: {e!r}")
        finally:
            with self._lock:  # from here on nobody adds to them
                if not self.over:
                    self.lost = "its upkeep was cancelled"
                left, self._pending = self._pending, []
            for change in left:
                self._settle(change, self.gone())

    async def _until_due(self) -> None:
        tick = self._terms.period / _TICKS_PER_PERIOD
        while (left := self._due() - self._system.boot()) > 0:
            wake = self._wake
            with anyio.move_on_after(max(_SLEEP_MIN, min(left, tick))):
                await wake.wait()
            if not self._tell(_nothing):
                self._lose("the event loop of its holder has ended")
                return

    def _due(self) -> float:
        """When the next write is to be sent, on the boot clock."""
        if self._pending:
            return self._paced
        if self._renewing:
            return max(self._paced, self._since + self._terms.period)
        return float("inf")

    def _nudge(self) -> None:
        self._wake.set()
        self._wake = anyio.Event()

    async def _write_pending(self) -> None:
        with self._lock:
            changes, self._pending = self._pending, []
        write = _Write(self._compose(changes), self._system.boot())
        try:
            while not await self._try(write):
                if self.lost:
                    return
                await anyio.sleep(max(0.0, min(self._paced, self.deadline) - self._system.boot()))
        finally:
            if not write.written:
                error = self.gone() if self.over else LeaseLost("its upkeep was cancelled")
                for change in write.composed.changes:
                    self._settle(change, error)

    async def _try(self, write: _Write) -> bool:
        """One bounded try. True: written and known; False: again, unless it is lost now."""
        sent, trouble = self._system.boot(), "the store did not answer"
        with anyio.move_on_after(self._limit(sent)):
            try:
                answer = await self._send(write.composed.record)
                if isinstance(answer, Written) and answer.first:
                    writers = catalog.with_writer(write.nonce, self._writers)
                    self._stands(write, write.composed.record, answer.generation, writers, sent)
                    return True
                return await self._look(write, answer)
            except StoreRefused as e:
                trouble = str(e)  # it may be mended before the deadline
                await anyio.sleep(self._terms.timeout)
        if self._system.boot() >= self.deadline:
            self._lose(f"it was not renewed in time: {trouble}")
        return False

    async def _send(self, record: LeaseRecord) -> Written | Refused:
        return await self._store.replace(
            self._name, self._generation, records.encode(record), nonce=record.nonce,
            earlier=self._writers,
        )  # fmt: skip

    async def _look(self, write: _Write, answer: Written | Refused) -> bool:
        """Refused, or recognised on reading back: what stands there now?"""
        if isinstance(answer, Refused):
            current = answer.current
        else:
            current = await self._store.read(self._name)
        writers = "" if current is None else current.meta.get("nonce", "")
        applied = write.nonce in writers.split()
        record = self._ours(current)
        if applied and write.composed.end == "released":
            self._settled(write)  # whoever holds it now took it after our release
            return True
        if current is None or record is None:
            self._lose(_what_happened(current))
            return False
        if applied:
            self._stands(write, record, current.generation, writers, write.began)
            return True
        self.record, self._generation, self._writers = record, current.generation, writers
        # Another precondition and another content: another logical write. The one before can
        # no longer be applied, its generation is gone.
        write.began = self._system.boot()
        write.composed = self._compose(write.composed.changes)
        self._paced = self._system.boot() + catalog.until_free(self._store, current)
        return False

    def _after_own_write(self) -> float:
        return self._system.boot() + (1 + _ROOM) * self._store.pace.write

    def _stands(
        self, write: _Write, record: LeaseRecord, generation: int, writers: str, since: float
    ) -> None:
        """The write is known to be applied, and `record` stands there now."""
        self.record, self._generation, self._writers = record, generation, writers
        self._own = write.composed.own
        self._since = since
        self.deadline = leases.trusted_until(since, self._terms)
        self._settled(write)

    def _settled(self, write: _Write) -> None:
        write.written = True
        self.ended = write.composed.end
        self._paced = self._after_own_write()
        for change in write.composed.changes:
            self._settle(change)

    def _settle(self, change: Change, error: Exception | None = None) -> None:
        self._tell(partial(change.settle, error))

    def _compose(self, changes: list[Change]) -> Composed:
        nonce = self._system.token()
        return compose(
            self.record, self._own, changes, nonce=nonce, boot=self._store.backend.boot,
            fail=self._settle,
        )  # fmt: skip

    def _ours(self, current: Stored | None) -> LeaseRecord | None:
        """The record there, if it is still that of this holder."""
        if current is None:
            return None
        try:
            record = catalog.decode_record(LeaseRecord, current)
        except UsageError:
            return None
        mine = (self.acquired.holder, self.acquired.epoch)
        return record if (record.holder, record.epoch) == mine else None

    def _limit(self, sent: float) -> float:
        """Seconds that a try may take."""
        timeout = self._terms.timeout
        if sent >= self.deadline:
            return timeout  # slept past it: one try tells whether anybody took our place
        return min(timeout, max(_SLEEP_MIN, self.deadline - sent))

    def _lose(self, reason: str) -> None:
        if self.over:
            return
        self.lost = reason  # nothing is trusted from here on
        self._tell(self._report)

    def _report(self) -> None:
        self.on_lost()


class _Write:
    """One logical write: the same nonce and precondition on every repetition."""

    def __init__(self, composed: Composed, began: float) -> None:
        self.composed = composed
        self.began = began
        self.written = False

    @property
    def nonce(self) -> str:
        return self.composed.record.nonce


def _nothing() -> None:
    """A sign of life."""


def _what_happened(current: Stored | None) -> str:
    if current is None:
        return "it was deleted"
    return "somebody else has it now: its renewals came too late, or it was let go of elsewhere"
