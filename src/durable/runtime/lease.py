"""One worker's lease: taken, renewed, lost, given back.

The store is authoritative. A lease is ours while the object `workers/<id>` carries our owner
token and says "alive"; whoever takes over replaces it by a dead one first (a fence), and from
then on none of our renewals succeeds. Between two renewals we trust the last acknowledged one,
for ttl - margin from the moment it was sent, on a clock that counts suspend.

- A renewal that is not answered extends nothing and is repeated with the same precondition until
  it is known; where its answer stays ambiguous the object is read, because a fence keeps the
  nonces of the writers before it and would look like ours.
- Found fenced, gone or foreign: lost at once. No answer until the deadline: lost then.
- A process that was stopped or suspended finds its deadline past when it wakes. It holds nothing
  until one more renewal is acknowledged; if nobody fenced it meanwhile, nobody has taken anything
  from it, and it goes on. That renewal is the only write a holder past its deadline sends.
- A worker id that others have seen dead is never alive again. So a lease that was given back is
  taken anew under the same id only if nobody can have fenced it: it was deleted in time, and no
  create of it is under way, which would stand there unrenewed. Else it counts as lost.

Renewal has a thread and an event loop of its own, so code that blocks the worker's loop or holds
a core loses nothing. It watches that loop, too, and warns when it stands still for long.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from functools import partial

import anyio
import anyio.abc
import msgspec

from durable.errors import StoreRefused, StoreUnavailable
from durable.loops import RunLoop, run_asyncio
from durable.protocol import leases, names, records
from durable.protocol.leases import Terms
from durable.runtime.tenure import LoopWatch, Tenure
from durable.store import Refused, Store, Stored, Written
from durable.system import System

_TICKS_PER_PERIOD = 4  # looks at the event loop
_SLEEP_MIN = 0.001  # seconds; a shorter one may not move a clock that floats

_decode = msgspec.json.Decoder(records.Lease).decode


class LeaseKeeper:
    """Keeps the lease of one worker id. Its methods belong to one event loop, the owning one.

    A lost lease is lost for good: go on with a new keeper under a new worker id.

    Args:
        store: where the lease is. Its patience bounds `acquire`; renewals have their deadline.
        system: clocks and chance.
        terms: how long the lease is and how it is renewed.
        record: what the lease says (worker id, label, pid, boot, lock file, what it serves);
            nonce, ttl and margin are filled in here.
        on_lost: called once with the reason, in the owning event loop, when the lease is lost
            while it is acquired; not after `release` or `stop`.
        task_group: renew in a task of this group instead of a thread (for virtual time).
        run_loop: runs the event loop of the renewal's thread.
        describe_running: what is running in the owning event loop, for the warning that it
            stands still. Called from the renewal's thread.

    Attributes:
        worker: the worker id.
        owner: the owner token, in the object's metadata.
        refusal: why the store will not have the lease renewed; None while it has, or is silent.
    """

    def __init__(
        self,
        *,
        store: Store,
        system: System,
        terms: Terms,
        record: records.Lease,
        on_lost: Callable[[str], None],
        task_group: anyio.abc.TaskGroup | None = None,
        run_loop: RunLoop = run_asyncio,
        describe_running: Callable[[], str] = lambda: "",
    ) -> None:
        self.worker = record.worker
        self.owner = system.token()
        self._name = names.worker(record.worker)
        self._store = store.patient(None)
        self._patience = store.patience
        self._system = system
        self._terms = terms
        self._record = record
        self._on_lost = on_lost
        self._task_group = task_group
        self._run_loop = run_loop
        self._describe_running = describe_running
        self.refusal: StoreRefused | None = None
        self._tenure: Tenure | None = None
        self._left: Tenure | None = None  # whose delete was not answered
        self._lost = ""
        self._turn = anyio.Lock()

    # -- for the owning event loop ---------------------------------------------------------------

    def trusted(self) -> bool:
        """Whether the lease is held at this moment. Cheap; any thread may ask.

        After False, `acquire` tells whether it is held again (a suspended machine) or lost.
        """
        tenure = self._tenure
        return tenure is not None and not self._lost and self._system.boot() < tenure.deadline

    @property
    def deadline(self) -> float:
        """Until when the lease is trusted, on the boot clock; -inf while it is not held."""
        tenure = self._tenure
        return -math.inf if tenure is None or self._lost else tenure.deadline

    @property
    def lost(self) -> str:
        """Why the lease was lost; empty if it was not."""
        return self._lost

    async def acquire(self) -> bool:
        """Hold the lease: acknowledged, trusted and being renewed. Concurrent callers share it.

        Returns:
            False: it is lost for good, or `release` or `stop` came in between.

        Raises:
            StoreUnavailable: no answer within the store's patience.
            StoreRefused: the store will not have it.
        """
        if self.trusted():
            return True
        async with self._turn:
            if self._tenure is None and not self._lost:
                self._tenure = self._begin()
            tenure = self._tenure
        while tenure is not None and not self._lost:
            if tenure.error is not None:
                if self._tenure is tenure:
                    self._tenure = None
                    if tenure.unsure:
                        self._lost = f"whether it was taken is not known: {tenure.error}"
                raise tenure.error
            if self._tenure is not tenure or tenure.ended.is_set():
                return False
            if self.trusted():
                return True
            await tenure.news.wait()
        return False

    async def held(self) -> None:
        """Returns while the lease is trusted, or once it is again: before a write under it.

        Never, if it is lost: whoever does something under a lease is cancelled with it.
        """
        while not self.trusted():
            tenure = self._tenure
            if tenure is None or self._lost:
                await anyio.sleep_forever()
            else:
                await tenure.news.wait()

    async def release(self) -> bool:
        """Stop renewing and delete the lease.

        If nobody can have fenced it until then, `acquire` may be called again.

        Returns:
            False: it was lost, or the store refused or did not answer in time; then it runs out,
                unless a later call finds that the store answers again.
        """
        async with self._turn:
            again = self._tenure is None
            tenure, self._left = self._tenure or self._left, None
            self.stop()
            if tenure is None:
                return not self._lost
            gone = False
            timeout = anyio.move_on_after(self._terms.timeout)
            with timeout, contextlib.suppress(StoreRefused):
                await tenure.ended.wait()
                gone = (again or not self._lost) and await self._delete(tenure)
            if timeout.cancelled_caught:
                self._left = tenure
            in_time = self._system.boot() < tenure.deadline  # else it may be gone since a fence
            if not (gone and in_time) or tenure.unsure:
                self._lost = self._lost or "it was not given back in good order"
            return gone

    def stop(self) -> None:
        """Stop renewing without a write: the lease runs out, or is lost already."""
        tenure, self._tenure = self._tenure, None
        if tenure is not None:
            tenure.halt()
            tenure.announce()

    # -- starting and ending ---------------------------------------------------------------------

    def _begin(self) -> Tenure:
        tenure = Tenure(self._system.boot())
        if self._task_group is not None:
            self._task_group.start_soon(self._renewal, tenure)
        else:
            threading.Thread(
                target=partial(self._run_loop, self._renewal, tenure),
                name=f"lease of {self.worker}",
                daemon=True,  # a process that ends must not wait for its lease
            ).start()
        return tenure

    async def _renewal(self, tenure: Tenure) -> None:
        """What the thread or task does, from acquisition to the end of the tenure."""
        try:
            with anyio.CancelScope() as scope:
                tenure.enter(scope)
                await self._keep(tenure)
        except Exception as e:  # noqa: BLE001  # whoever waits is told, whatever it is
            if tenure.deadline == -math.inf:
                tenure.error = e
            else:
                self._lose(tenure, f"its renewal failed: {e!r}")
        finally:
            tenure.tell(tenure.end)

    async def _keep(self, tenure: Tenure) -> None:
        watch = LoopWatch(tenure, self.worker, self._terms, self._describe_running)
        while (since := await self._write(tenure)) is not None:
            self.refusal = None
            tenure.deadline = leases.trusted_until(since, self._terms)
            tenure.tell(tenure.announce)
            if not await self._rest(since + self._terms.period, watch):
                return

    async def _rest(self, due: float, watch: LoopWatch) -> bool:
        """Wait until `due`. False: the owning event loop is closed, nobody needs the lease."""
        tick = self._terms.period / _TICKS_PER_PERIOD
        while watch.look():  # before every renewal, also one that is due already
            left = due - self._system.boot()
            if left <= 0:
                return True
            await anyio.sleep(max(_SLEEP_MIN, min(left, tick)))
        return False

    def _lose(self, tenure: Tenure, reason: str) -> None:
        self._lost = reason  # nothing is trusted from here on
        tenure.tell(lambda: self._report(tenure))

    def _report(self, tenure: Tenure) -> None:
        tenure.announce()
        if tenure is self._tenure:
            self._on_lost(self._lost)

    # -- writing ---------------------------------------------------------------------------------

    async def _write(self, tenure: Tenure) -> float | None:
        """Create or renew, repeated until known.

        Returns the moment from which the lease counts; None if it is lost.
        """
        write = _Write(self._system)
        while True:
            sent, trouble = self._system.boot(), "the store did not answer"
            with anyio.move_on_after(self._limit(tenure, sent)):
                try:
                    answer = await self._send(tenure, write.nonce)
                    if isinstance(answer, Written) and answer.first:
                        tenure.stands(answer.generation, write.nonce)
                        return sent  # not when the write began: this very try was applied
                    tenure.unsure |= tenure.generation is None
                    if not await self._look(tenure, answer):
                        return None
                    if write.nonce in tenure.writers:
                        return write.began
                    # Ours, but an earlier write of ours: write again, on top of it.
                    write = _Write(self._system)
                    continue
                except StoreRefused as e:
                    if tenure.deadline == -math.inf:
                        raise
                    self.refusal, trouble = e, e.message  # it may be mended before the deadline
                    await anyio.sleep(self._terms.timeout)
            tenure.unsure |= tenure.generation is None
            if self._is_too_late(tenure):
                self._lose(tenure, f"it was not renewed in time: {trouble}")
                return None

    async def _send(self, tenure: Tenure, nonce: str) -> Written | Refused:
        terms = self._terms
        body = records.encode(
            msgspec.structs.replace(
                self._record, nonce=nonce, ttl=terms.ttl, margin=terms.margin, state="alive"
            )
        )
        if tenure.generation is None:
            meta = {"owner": self.owner}
            return await self._store.create(self._name, body, nonce=nonce, meta=meta)
        earlier = " ".join(tenure.writers)
        return await self._store.replace(
            self._name, tenure.generation, body, nonce=nonce, earlier=earlier, owner=self.owner
        )

    async def _look(self, tenure: Tenure, answer: Written | Refused) -> bool:
        """A write was refused, or recognised on reading back: is what stands there ours?

        Recognised is not enough: a fence keeps the nonces of the writers before it.
        """
        if isinstance(answer, Refused):
            current = answer.current
        else:
            current = await self._store.read(self._name)
        if current is not None and self._is_ours(current):
            tenure.found(current)
            return True
        self._lose(tenure, _what_happened(current))
        return False

    def _limit(self, tenure: Tenure, sent: float) -> float:
        """Seconds that a try may take."""
        timeout = self._terms.timeout
        if tenure.deadline == -math.inf:
            if self._patience is None:
                return timeout
            return min(timeout, max(_SLEEP_MIN, tenure.began + self._patience - sent))
        if sent >= tenure.deadline:
            return timeout  # slept past it: one try tells whether anybody fenced us
        return min(timeout, max(_SLEEP_MIN, tenure.deadline - sent))

    def _is_too_late(self, tenure: Tenure) -> bool:
        """Whether there is no point in another try.

        Raises:
            StoreUnavailable: patience ran out before the lease was ever held.
        """
        now = self._system.boot()
        if tenure.deadline > -math.inf:
            return now >= tenure.deadline
        if self._patience is not None and now >= tenure.began + self._patience:
            raise StoreUnavailable(
                f"the store did not acknowledge the lease of worker {self.worker} "
                f"within {self._patience:g} s",
                hint="Check that the store can be reached and written to, then start again.",
            )
        return False

    async def _delete(self, tenure: Tenure) -> bool:
        if tenure.generation is not None and await self._store.delete(
            self._name, tenure.generation
        ):
            return True
        # A renewal that was under way may have been applied.
        current = await self._store.read(self._name)
        if current is None:
            return True
        return self._is_ours(current) and await self._store.delete(self._name, current.generation)

    def _is_ours(self, current: Stored) -> bool:
        try:
            lease = _decode(current.body or b"")
        except msgspec.MsgspecError:
            lease = None
        return leases.held_by(self.owner, lease, current.meta.get("owner"))


class _Write:
    """One logical write: the same nonce and precondition on every repetition."""

    def __init__(self, system: System) -> None:
        self.nonce = system.token()
        self.began = system.boot()


def _what_happened(current: Stored | None) -> str:
    if current is None:
        return "it was deleted"
    return "somebody else wrote it: fenced, because its renewals came too late or it seemed dead"
