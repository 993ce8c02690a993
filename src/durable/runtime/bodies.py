"""Bodies of steps: attempts until one succeeds or its error is final."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from durable.errors import OutcomeUnknown
from durable.protocol import failures, names, retries
from durable.protocol.attempts import Tried
from durable.protocol.failures import Failure
from durable.protocol.records import Attempt, Beat, Step, Wait
from durable.protocol.retries import GiveUp, RetryIn
from durable.runtime.calls import StepCall
from durable.runtime.cancelling import Cancelling
from durable.runtime.closing import Stopped
from durable.runtime.gate import Gate
from durable.runtime.inflight import InFlight
from durable.runtime.inside import Inside
from durable.runtime.invoking import Invoker
from durable.runtime.latest import Keeper, Latest
from durable.runtime.loops import Loop
from durable.runtime.ownership import Ownership
from durable.runtime.parking import Parking
from durable.runtime.processes import told
from durable.runtime.publishing import Publishing
from durable.runtime.recording import Recorder
from durable.runtime.scopes import Scope
from durable.runtime.surroundings import Progress, Surroundings
from durable.runtime.threads import Unwinding
from durable.runtime.turns import cancel_count, cancelled_since

_NEVER = Tried()


class Course(msgspec.Struct):
    """How far the attempts of one call have come.

    Attributes:
        number: of the attempt that runs, or of the last that failed.
        began: when the first one began, in store time.
        details: what a body last gave to `heartbeat`.
        beats: the object that holds them; None before the first.
    """

    number: int
    began: float
    details: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    beats: Latest | None = None


@dataclass(kw_only=True)
class Bodies:
    """Runs the bodies of one execution.

    Attributes:
        tried: how far earlier owners came with each call, by path.
        passed: told of each wait for an attempt that an earlier owner began and that is over.
    """

    around: Surroundings
    ownership: Ownership
    tried: Mapping[str, Tried]
    gate: Gate
    in_flight: InFlight
    cancelling: Cancelling
    recorder: Recorder
    invoker: Invoker
    parking: Parking
    passed: Callable[[Wait], None]
    publishing: Publishing
    keeper: Keeper
    loop: Loop

    async def outcome(self, call: StepCall[Any], branch: Scope) -> tuple[Step, object]:
        """What the call comes to, not recorded yet, and the decoded copy of its value.

        Failed attempts are recorded on the way.
        """
        earlier = self.tried.get(call.path, _NEVER)
        course = Course(0, self.around.store.now(), earlier.details)
        if call.definition.at_most_once and earlier.unknown:
            return self._unknown(call, earlier.begun), None
        if earlier.failed is not None:
            course.number = earlier.failed.attempt
            course.began = earlier.failed.began or earlier.failed.time
            await self._back_off(call, earlier.failed, branch)
            self.passed(earlier.failed.as_wait())
        while True:
            course.number += 1
            tried = await self._try(call, course)
            if isinstance(tried, tuple):
                return tried
            await self.recorder.write_attempt(tried, branch)
            self.around.recorded(self.ownership.run_id)
            await self._back_off(call, tried, branch)

    async def _try(self, call: StepCall[Any], course: Course) -> tuple[Step, object] | Attempt:
        """One attempt: the call's outcome, or the record that another is due."""
        if not self.gate.guard():
            raise await self.gate.refusal()
        number = course.number
        if call.definition.at_most_once:
            await self.recorder.claim(self.recorder.begin(call, number))
            await anyio.lowlevel.checkpoint_if_cancelled()
        self._tell("begin", call, attempt=number)
        inside = self._inside(call, course)
        before = cancel_count()
        try:
            raw, copy = await self.invoker.invoke(call, number, inside)
        except KeyboardInterrupt:
            raise  # the process was asked to end; nothing happened that could be recorded
        except Unwinding:
            self.gate.close(Stopped("lease"))  # for this run for good, even if it comes back
            raise await self.gate.refusal() from None
        except BaseException as e:
            if isinstance(e, anyio.get_cancelled_exc_class()) and cancelled_since(before):
                raise
            error, failure = told(e)
            decision = self._decide(call, course, error)
        else:
            value = msgspec.Raw(raw)
            step = self.recorder.outcome(call, "value", value=value, attempt=number)
            if inside.published:
                step.published = self.publishing.pending(inside.published)
            return step, copy
        course.details, course.beats = inside.details, inside.beats
        if isinstance(decision, GiveUp):
            if decision.surprising:
                failure.notes = [*failure.notes, f"not tried again: {decision.reason}"]
            step = self.recorder.outcome(call, "error", failure=failure, attempt=number)
            step.published = self.publishing.pending(inside.published)
            return step, None
        if self.cancelling.covers(call):  # what a body raises in being cancelled is kept for people
            return self.recorder.outcome(call, "cancelled", failure=failure, attempt=number), None
        self._tell("retry", call, attempt=number, failed=True, seconds=decision.seconds)
        return self._failed(call, course, failure, decision)

    def _inside(self, call: StepCall[Any], course: Course) -> Inside:
        definition = call.definition
        if not definition.is_async:
            self.keeper.start()
        return Inside(
            store=self.around.store, loop=self.loop, publishing=self.publishing,
            new_beats=partial(self._new_beats, call.path, course.number), beats=course.beats,
            told=course.details, details=course.details,
            limited=bool(definition.timeout or definition.heartbeat_timeout),
            timeout=definition.timeout or math.inf,
            silence=definition.heartbeat_timeout or math.inf,
        )  # fmt: skip

    def _new_beats(self, path: str, attempt: int) -> Latest:
        owner = self.ownership

        def make(details: msgspec.Raw, nonce: str, now: float) -> Beat:
            return Beat(path, attempt, owner.epoch, nonce, now, details)

        name = names.beat(owner.run_id, owner.instance, path, owner.epoch)
        return Latest(self.around, name, make, self.keeper)

    def _unknown(self, call: StepCall[Any], attempt: int) -> Step:
        """An earlier owner began a body that must not begin twice, and told nobody how it went."""
        error = OutcomeUnknown(
            f"attempt {attempt} of step {call.name!r} began and its outcome was not recorded: it "
            "may have done its work or not, and it is not repeated",
            hint="look at the outside system; catch OutcomeUnknown in the workflow to decide there",
            run=self.ownership.run_id,
        )
        failure = failures.from_exception(error)
        return self.recorder.outcome(call, "error", failure=failure, attempt=attempt)

    def _decide(
        self, call: StepCall[Any], course: Course, error: BaseException
    ) -> RetryIn | GiveUp:
        return retries.decide(
            call.definition.retry,
            course.number,
            error,
            uniform=self.around.system.uniform(0, 1),
            elapsed=self.around.store.now() - course.began,
        )

    def _failed(
        self, call: StepCall[Any], course: Course, failure: Failure, decision: RetryIn
    ) -> Attempt:
        return self.recorder.failed_attempt(
            call, course.number, failure, decision.seconds,
            began=course.began, details=course.details,
        )  # fmt: skip

    async def _back_off(self, call: StepCall[Any], failed: Attempt, branch: Scope) -> None:
        """Wait for the next attempt: in place, or parked. Meanwhile no body is in flight."""
        self.in_flight.ends(call.path)
        why = f"for attempt {failed.attempt + 1} of step {call.name!r}"
        with self.parking.wait(branch, call.path, failed.due, certain=True, why=why):
            await anyio.sleep(max(0.0, failed.due - self.around.store.now()))
        if self.in_flight.draining:
            await self.in_flight.wait_for_the_end()
        self.in_flight.begins(call.path)

    def _tell(
        self,
        kind: str,
        call: StepCall[Any],
        *,
        attempt: int,
        failed: bool = False,
        seconds: float = 0,
    ) -> None:
        if self.around.observe is not None:
            progress = Progress(kind, call.path, call.name, attempt, failed, seconds)
            self.around.observe(self.ownership.run_id, progress)
