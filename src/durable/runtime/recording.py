"""Records of a run: made, and written as long as this owner may write.

A write refused because a record is there already is a dead owner's record that landed late. A
write that the store refuses for good closes the run: what is not in the store, nobody may see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import anyio
import msgspec

from durable.errors import StoreError
from durable.protocol import names, records
from durable.protocol.failures import Failure
from durable.protocol.records import Attempt, Begin, Outcome, Step, Take, Undo, Wait
from durable.runtime.calls import Call
from durable.runtime.cancellations import Cancellations
from durable.runtime.closing import LateRecord, Stopped, corrupt
from durable.runtime.facts import CorruptFact, decode_undo, decode_wait
from durable.runtime.gate import Gate
from durable.runtime.grouping import Groups
from durable.runtime.ownership import Ownership
from durable.runtime.riding import Riders
from durable.runtime.scopes import Scope
from durable.runtime.surroundings import Surroundings
from durable.store import Refused, Written

Record = TypeVar("Record", Step, Attempt, Undo)
Ordered = TypeVar("Ordered", Step, Take)


@dataclass(kw_only=True)
class Recorder:
    """Makes and writes the records of one execution.

    Attributes:
        riders: what is recorded with whatever is recorded next.
        groups: what is only in memory; nothing is written before it.
        spawn: starts a task of the run's own.
    """

    around: Surroundings
    ownership: Ownership
    gate: Gate
    cancellations: Cancellations
    riders: Riders
    groups: Groups
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]

    # -- making -----------------------------------------------------------------------------------

    def outcome(
        self,
        call: Call[Any],
        outcome: Literal["value", "error", "cancelled", "abandoned"],
        *,
        value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET,
        failure: Failure | None = None,
        attempt: int = 1,
    ) -> Step:
        """The record of what the call came to; its order number is given when it is written."""
        return Step(
            path=call.path, name=call.name, kind=call.kind, outcome=outcome,
            epoch=self.ownership.epoch, n=0, nonce=self.around.system.token(),
            time=self.around.store.now(), digest=call.digest, value=value, failure=failure,
            attempt=attempt,
        )  # fmt: skip

    def failed_attempt(
        self,
        call: Call[Any],
        attempt: int,
        failure: Failure,
        seconds: float,
        *,
        began: float,
        details: msgspec.Raw | msgspec.UnsetType,
    ) -> Attempt:
        """The record of an attempt that is followed by another in `seconds`."""
        now = self.around.store.now()
        return Attempt(
            path=call.path, attempt=attempt, failure=failure, due=now + seconds,
            nonce=self.around.system.token(), time=now, epoch=self.ownership.epoch, began=began,
            details=details,
        )  # fmt: skip

    def begin(self, call: Call[Any], attempt: int) -> Begin:
        """The claim that the body of this attempt begins now."""
        return Begin(
            path=call.path, attempt=attempt, nonce=self.around.system.token(),
            time=self.around.store.now(), epoch=self.ownership.epoch,
        )  # fmt: skip

    def take(
        self,
        call: Call[Any],
        k: int,
        outcome: Outcome,
        *,
        value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET,
        failure: Failure | None = None,
        event: str = "",
    ) -> Take:
        """The k-th decision; its order number is given when it is written."""
        return Take(
            k=k, path=call.path, kind=call.kind, name=call.name, outcome=outcome,
            epoch=self.ownership.epoch, n=0, nonce=self.around.system.token(),
            time=self.around.store.now(), event=event, value=value, failure=failure,
        )  # fmt: skip

    def wait(self, call: Call[Any], due: float | None) -> Wait:
        """The claim that the call's wait has begun."""
        return Wait(
            path=call.path, kind=call.kind, name=call.name, epoch=self.ownership.epoch,
            nonce=self.around.system.token(), time=self.around.store.now(), due=due,
        )  # fmt: skip

    def in_order(self, record: Ordered, n: int) -> Ordered:
        """The record with its order number, and what came before it without a record."""
        record.n = n
        self.riders.board(record)
        return record

    def undo(self, call: Call[Any], stored: msgspec.Raw, n: int) -> Undo:
        """The registration of a step's undo action."""
        return Undo(
            path=call.path, name=call.name, input=stored, epoch=self.ownership.epoch, n=n,
            nonce=self.around.system.token(), time=self.around.store.now(),
        )  # fmt: skip

    # -- writing ----------------------------------------------------------------------------------

    def write_outcome(
        self, step: Step, branch: Scope, *, shielded: bool = False
    ) -> Awaitable[None]:
        """Returns once it is recorded. Raises the cancellation if the run is or gets closed.

        Args:
            shielded: the caller stands in a shielded wait of the gate already.
        """
        return self._write(self._create_outcome, step, branch, shielded=shielded)

    def write_attempt(self, attempt: Attempt, branch: Scope) -> Awaitable[None]:
        """As `write_outcome`."""
        return self._write(self._create_attempt, attempt, branch)

    def write_undo(self, undo: Undo, branch: Scope) -> Awaitable[None]:
        """As `write_outcome`."""
        return self._write(self._create_undo, undo, branch)

    async def claim(self, begin: Begin) -> None:
        """Returns if the claim is ours. A cancellation by user code interrupts it: no body runs.

        If it is not, a dead owner's claim landed late. Whether its body ran is not known, and
        what else it left is to be listed first.
        """
        owner = self.ownership
        name = names.begin(owner.run_id, owner.instance, begin.path, begin.attempt)
        try:
            written = await self.around.store.create(name, records.encode(begin), nonce=begin.nonce)
        except StoreError as e:
            self._close(e)
        else:
            if isinstance(written, Refused):
                self.gate.close(LateRecord(begin.path))
        if not self.gate.guard():
            raise await self.gate.refusal()

    async def _create_outcome(self, step: Step) -> None:
        name = names.step_in(self.ownership.folder, step.path)
        written = await self.around.store.create(name, records.encode(step), nonce=step.nonce)
        self._acknowledged(step, written)

    def _acknowledged(self, record: Step | Take, written: Written | Refused) -> None:
        if isinstance(written, Refused):
            self.gate.close(LateRecord(record.path))
        else:
            self.riders.arrived(record)

    async def write_take(self, take: Take) -> None:
        """Claim the next place in the chain of decisions; closes the run if it is taken.

        For a task of the run's own, which nothing but the end of the run cancels.
        """
        pending = self.groups.pending()
        if pending is not None:
            await pending.wait()
            if not self.gate.guard():
                return
        owner = self.ownership
        name = names.take(owner.run_id, owner.instance, take.k)
        try:
            written = await self.around.store.create(name, records.encode(take), nonce=take.nonce)
        except StoreError as e:
            self._close(e)
            return
        self._acknowledged(take, written)

    async def claim_wait(self, wait: Wait) -> Wait:
        """The wait as it is claimed now: ours, or that of an owner whose claim landed late.

        May be cancelled: a claim without an outcome says nothing but when it is due.
        """
        if not self.gate.guard():
            raise await self.gate.refusal()
        owner = self.ownership
        self.riders.open.add(wait.path)
        self.riders.board_claim(wait)
        name = names.wait(owner.run_id, owner.instance, wait.path)
        try:
            written = await self.around.store.create(name, records.encode(wait), nonce=wait.nonce)
        except StoreError as e:
            self._close(e)
            raise await self.gate.refusal() from e
        if isinstance(written, Refused) and written.current is not None:
            try:
                return decode_wait(written.current)
            except CorruptFact as e:
                self.gate.close(corrupt(f"run {owner.run_id!r}: {e}", wait.path))
                raise await self.gate.refusal() from e
        self.riders.claim_arrived(wait)
        return wait

    async def _create_attempt(self, attempt: Attempt) -> None:
        owner = self.ownership
        self.riders.open.add(attempt.path)
        name = names.attempt(owner.run_id, owner.instance, attempt.path, attempt.attempt)
        # A refusal means that a dead owner's claim of this attempt landed late: it counts.
        await self.around.store.create(name, records.encode(attempt), nonce=attempt.nonce)

    async def _create_undo(self, undo: Undo) -> None:
        owner = self.ownership
        name = names.undo(owner.run_id, owner.instance, undo.path)
        written = await self.around.store.create(name, records.encode(undo), nonce=undo.nonce)
        if isinstance(written, Refused) and written.current is not None:
            # A dead owner's registration of this step landed late: its place counts.
            try:
                there = decode_undo(written.current)
            except CorruptFact as e:
                self.gate.close(corrupt(f"run {owner.run_id!r}: {e}", undo.path))
            else:
                undo.epoch, undo.n = there.epoch, there.n

    async def _write(
        self,
        create: Callable[[Record], Awaitable[None]],
        record: Record,
        branch: Scope,
        *,
        shielded: bool = False,
    ) -> None:
        """Write whatever cancellations user code sends: only closing the run interrupts it.

        (Or a decision that closes the branch: then nobody waits for the record.) Native asyncio
        cancellation pierces anyio's shields, and may come again every turn. So the first one
        moves the write to a task of the run's own; the nonce makes it safe to repeat. The
        cancellation is raised at this strand's next durable call.
        """
        pending = self.groups.pending()
        if pending is not None:
            await self.cancellations.wait(pending, branch)
        if self.gate.may_act(branch):
            try:
                if shielded:
                    await create(record)
                else:
                    with self.gate.wait(branch, shield=True):
                        await create(record)
            except StoreError as e:
                self._close(e)
            except anyio.get_cancelled_exc_class():
                if not self.gate.is_open(branch):
                    raise
                self.cancellations.put_off()
                await self._write_apart(create, record, branch)
        # What an owner without its lease has recorded, its successor hands over.
        if not self.gate.may_act(branch):
            raise await self.gate.refusal()

    def _close(self, error: StoreError) -> None:
        """The record is not in the store, so nobody may see the outcome."""
        self.gate.close(Stopped("store", error=error))

    async def _write_apart(
        self, create: Callable[[Record], Awaitable[None]], record: Record, branch: Scope
    ) -> None:
        ended = anyio.Event()

        async def apart() -> None:
            with self.gate.wait(branch, shield=False):
                try:
                    await create(record)
                except StoreError as e:
                    self._close(e)
            ended.set()

        self.spawn(apart)
        await self.cancellations.wait(ended, branch)
