"""A handle: one instance of a run, seen from outside."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, cast, overload

import anyio
import msgspec

from durable.client import cancelling, reading, sending, skipping
from durable.client.cancelling import CancelAnswer
from durable.client.reading import Status, StepSummary
from durable.client.sending import SendAnswer
from durable.errors import DurableError, NeedsAttention, RunCancelled, RunFailed, UsageError
from durable.protocol import durations, failures, records, values
from durable.protocol.durations import Duration
from durable.protocol.failures import Failure
from durable.protocol.records import Result, Start
from durable.runtime.definitions import WorkflowDefinition
from durable.store import Pace, Store

R = TypeVar("R")

Ended = records.Status

POLL_MAX = 1.0  # seconds between two looks for an outcome


class Handle(Generic[R]):
    """One instance of a run. Restarting its id makes another instance, with its own handle.

    Args:
        store: where it is.
        run: its id.
        start: the `start` record that names the instance.
        definition: of the workflow; None if this program does not have its code.
    """

    def __init__(
        self, store: Store, run: str, start: Start, definition: WorkflowDefinition | None = None
    ) -> None:
        self._store = store
        self._run = run
        self._start = start
        self._definition = definition

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run

    @property
    def instance(self) -> str:
        """Which instance of that id."""
        return self._start.instance

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        return self._start.workflow

    @property
    def version(self) -> str:
        """The workflow's version when the run was started; see `@workflow(version=)`."""
        return self._start.workflow_version

    @property
    def queue(self) -> str:
        """Where workers look for it."""
        return self._start.queue

    def __repr__(self) -> str:
        return f"<handle of run {self._run!r}, workflow {self.workflow}>"

    async def result(self, timeout: Duration | None = None) -> R:
        """What the workflow returned; waits for it.

        Of a singleton with `on_conflict="skip"` it may be `Skipped`; of one that joined another
        run it is what that run returned.

        Args:
            timeout: how long to wait at most: seconds, a timedelta or text such as "1h30m"; 0
                looks once, None waits for ever.

        Raises:
            RunFailed: the workflow raised; `__cause__` is its error, rebuilt.
            RunCancelled: the run was cancelled.
            NeedsAttention: it waits for a human or for other code.
            TimeoutError: it is not over yet; `status` tells how it stands.
            UsageError: the timeout cannot be read.
            StoreUnavailable: the store does not answer.
        """
        seconds = None if timeout is None else durations.seconds(timeout)
        return outcome_of(self, await recorded(self, seconds))

    @overload
    async def cancel(
        self, *, reason: str = "", wait: Literal[False] = False, timeout: Duration | None = None
    ) -> CancelAnswer: ...
    @overload
    async def cancel(
        self, *, reason: str = "", wait: Literal[True], timeout: Duration | None = None
    ) -> Ended: ...
    async def cancel(
        self, *, reason: str = "", wait: bool = False, timeout: Duration | None = None
    ) -> CancelAnswer | Ended:
        """Ask for the run to be cancelled. Asked again, it is the same request.

        The run's open calls raise `RunCancelled`; it may clean up before it ends. One that nobody
        has begun ends without being begun.

        Args:
            reason: for people; of several requests the first counts.
            wait: until the run is over.
            timeout: how long to wait at most.

        Returns:
            `requested`, or `finished` if the run was over before. With `wait`, what it came to:
            `cancelled`, or `completed` or `failed` if its code came to that nevertheless.

        Raises:
            NotFound: the id does not stand for this instance any more.
            NeedsAttention: with `wait`: it waits for a human or for other code.
            TimeoutError: it is not over yet; the request stands.
            StoreUnavailable: the request may stand or not; ask again.
            UsageError: the timeout cannot be read, or the reason not be kept.
        """
        seconds = None if timeout is None else durations.seconds(timeout)
        answer = await cancelling.request(self._store, self._run, self._start.instance, reason)
        if not wait:
            return answer
        return (await recorded(self, seconds)).status

    async def send(self, name: str, value: object = None, *, key: str | None = None) -> SendAnswer:
        """Send an event to the run, for `wait_event(name)` there.

        It is kept if the run does not wait for it yet, and reaches at most one wait.

        Args:
            name: of the event.
            value: checked against the type that the workflow declares for the event, if this
                program has its code.
            key: the same key again is the same event: a repeated request changes nothing. By
                default each is an event of its own.

        Returns:
            `accepted`: the run was not over when the event was stored. `finished`: it was, so
            nobody will see the event.

        Raises:
            InvalidArguments: the value does not fit the type, or cannot be stored.
            NotFound: the id does not stand for this instance any more.
            StoreUnavailable: it may have been sent or not; ask again with the same key.
        """
        raw = sending.encoded(name, value, self._definition and self._definition.events.get(name))
        return await sending.send(self._store, self._run, self._start.instance, name, raw, key=key)

    async def status(self) -> Status:
        """`waiting`, `running`, `parked`, `needs-attention`, `completed`, `failed` or `cancelled`.

        A string; its `reason` tells why the run waits or needs attention.
        """
        return await reading.read_status(self._store, self._run, self._start)

    async def steps(self) -> list[StepSummary]:
        """The calls that are recorded so far, in their order.

        Raises:
            NeedsAttention: an object of the run is damaged or foreign.
        """
        return reading.summarize(await reading.load(self._store, self._run))

    async def published(self) -> dict[str, object]:
        """What the run has published of its progress, by name: the newest value of each.

        Values are read without annotations: users' classes are dicts.

        Raises:
            NeedsAttention: an object of the run is damaged or foreign.
        """
        found = await reading.published(self._store, self._run, self._start.instance)
        return {name: reading.plain_value(record.value) for name, record in found.items()}


async def recorded(
    handle: Handle[Any], timeout: float | None = None, *, explained: bool = False
) -> Result:
    """The outcome as it is stored, whatever it is; waits for it as `Handle.result` does.

    Args:
        explained: after a timeout, say how the run stands. That takes lists; waiting takes none.
    """
    store, run, start = handle._store, handle._run, handle._start
    looks = Looks(store.pace, timeout)
    while True:
        result = await reading.read_result(store, run, start.instance)
        if result is not None and result.joined is not None:
            run, start = await reading.joined(store, result.joined)
            continue
        if result is not None:
            return result
        attention = await reading.read_attention(store, run, start)
        if attention is not None:
            raise needs_attention(run, attention)
        if not await looks.again():
            said = await _standing(store, run, start) if explained else ""
            raise TimeoutError(f"run {run!r} is not over after {timeout:g} s{said}")


async def _standing(store: Store, run: str, start: Start) -> str:
    """How a run stands that is not over: what whoever waited for it looks at next."""
    try:
        status = await reading.read_status(store, run, start)
    except DurableError:  # it is asked only for the sake of another error
        return ""
    return f": {status}, {status.reason}" if status.reason else f": {status}"


def outcome_of(handle: Handle[R], result: Result) -> R:
    """The value that a recorded outcome holds, or its error raised."""
    run = handle.id
    if result.skipped is not None:
        return cast("R", skipping.of(result.skipped))
    if result.status == "cancelled":
        raise _cancelled(run, result.failure)
    if result.failure is not None:
        said = f"{result.failure.type}: {result.failure.message}"
        cause = failures.rebuild(result.failure)
        failed = RunFailed(f"run {run!r} failed: {said}", run=run)
        if result.failure.traceback:
            failed.add_note(f"It was raised here:\n{result.failure.traceback.rstrip()}")
        raise failed from cause
    if isinstance(result.value, msgspec.UnsetType):
        return cast("R", None)
    try:
        return cast(
            "R", values.decode(result.value, handle._definition and handle._definition.returns)
        )
    except values.Undecodable as e:
        raise UsageError(
            f"the recorded result of run {run!r} does not fit the return annotation of "
            f"{handle.workflow!r}: {e.said_of('result')}",
            hint="bring back the annotation under which it was recorded",
            run=run,
        ) from e


def _cancelled(run: str, failure: Failure | None) -> RunCancelled:
    error = RunCancelled(failure.message if failure else f"run {run!r} was cancelled")
    for note in failure.notes if failure else ():
        error.add_note(note)
    return error


def needs_attention(run: str, attention: records.Attention) -> NeedsAttention:
    """The error that an attention hint stands for."""
    return NeedsAttention(
        attention.message, reason=attention.reason, hint=attention.hint or None, run=run
    )


class Looks:
    """The pace of looking for something: ever further apart, until a deadline.

    Args:
        pace: the store's.
        timeout: seconds until the last look; 0 looks once, None for ever.
    """

    def __init__(self, pace: Pace, timeout: float | None = None) -> None:
        self._pause = pace.bell
        self._deadline = None if timeout is None else anyio.current_time() + timeout

    async def again(self) -> bool:
        """Wait for the moment of the next look; False: that was the last."""
        left = self._pause
        if self._deadline is not None:
            left = self._deadline - anyio.current_time()
        if left <= 0:
            return False
        await anyio.sleep(min(self._pause, left))
        self._pause = min(POLL_MAX, self._pause * 1.5)
        return True
