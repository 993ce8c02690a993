"""Bodies of steps: attempts until one succeeds or its error is final, each in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import msgspec

from durable.protocol import failures, retries, values
from durable.protocol.failures import Failure
from durable.protocol.records import Attempt, Step
from durable.runtime.calls import StepCall
from durable.runtime.closing import Stopped
from durable.runtime.gate import Gate
from durable.runtime.inflight import InFlight
from durable.runtime.ownership import Ownership
from durable.runtime.recording import Recorder
from durable.runtime.scopes import Scope, here
from durable.runtime.surroundings import Progress, Surroundings
from durable.runtime.threads import Unwinding
from durable.runtime.threadwatch import in_thread
from durable.runtime.turns import cancel_count, cancelled_since

T = TypeVar("T")


@dataclass(kw_only=True)
class Bodies:
    """Runs the bodies of one execution.

    Attributes:
        failed: the last attempt that earlier owners recorded as failed, by path.
    """

    around: Surroundings
    ownership: Ownership
    failed: Mapping[str, Attempt]
    gate: Gate
    in_flight: InFlight
    recorder: Recorder

    async def outcome(self, call: StepCall[Any], branch: Scope) -> tuple[Step, object]:
        """What the call comes to, not recorded yet, and the decoded copy of its value.

        Failed attempts are recorded on the way.
        """
        earlier = self.failed.get(call.path)
        number = earlier.attempt if earlier else 0
        if earlier:
            await self._back_off(call, earlier.due - self.around.store.now())
        while True:
            number += 1
            if not self.gate.guard():
                raise await self.gate.refusal()
            self._tell("begin", call, attempt=number)
            before = cancel_count()
            try:
                value = await self._run(call, number)
                raw, copy = values.encode_result(value, call.returns, name=call.name)
                value = msgspec.Raw(raw)
                return self.recorder.outcome(call, "value", value=value, attempt=number), copy
            except KeyboardInterrupt:
                raise  # the process was asked to end; nothing happened that could be recorded
            except Unwinding:
                self.gate.close(Stopped("lease"))  # for this run for good, even if it comes back
                raise await self.gate.refusal() from None
            except BaseException as e:
                if isinstance(e, anyio.get_cancelled_exc_class()) and cancelled_since(before):
                    raise
                failure = failures.from_exception(e)
                decision = retries.decide(
                    call.definition.retry, number, e, uniform=self.around.system.uniform(0, 1)
                )
            if isinstance(decision, retries.GiveUp):
                return self.recorder.outcome(call, "error", failure=failure, attempt=number), None
            await self._record_failed(call, branch, number, failure, decision.seconds)

    async def _record_failed(
        self, call: StepCall[Any], branch: Scope, number: int, failure: Failure, delay: float
    ) -> None:
        record = self.recorder.failed_attempt(call, number, failure, delay)
        self._tell("retry", call, attempt=number, failed=True, seconds=delay)
        await self.recorder.write_attempt(record, branch)
        await self._back_off(call, delay)

    async def _back_off(self, call: StepCall[Any], seconds: float) -> None:
        """Wait in place for the next attempt; meanwhile no body is in flight."""
        self.in_flight.ends(call.path)
        await anyio.sleep(max(0.0, seconds))
        await self.in_flight.wait_if_draining()
        self.in_flight.begins(call.path)

    async def _run(self, call: StepCall[Any], attempt: int) -> object:
        """Call the user's function with `here` set: async in this task, sync in a thread."""
        definition = call.definition
        fn = self.around.body_of(definition)
        token = here.set(self.ownership.current(call.path, attempt))
        try:
            if definition.is_async:
                return await fn(*call.args, **call.kwargs)
            return await in_thread(
                _apply_if, self.around.trusted, fn, call.args, call.kwargs,
                limiter=self.around.steps,
            )  # fmt: skip
        finally:
            here.reset(token)

    def _tell(
        self,
        kind: str,
        call: StepCall[Any],
        *,
        attempt: int,
        failed: bool = False,
        seconds: float = 0,
    ) -> None:
        progress = Progress(kind, call.path, call.name, attempt, failed, seconds)
        self.around.observe(self.ownership.run_id, progress)


def _apply_if(
    trusted: Callable[[], bool],
    fn: Callable[..., T],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> T:
    """The last look at the lease before a sync body.

    Between the event loop's look and the thread's start the whole process may have been stopped
    for longer than the lease lasts.
    """
    if not trusted():
        raise Unwinding("the lease was lost before the body began")
    return fn(*args, **kwargs)
