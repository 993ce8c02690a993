"""Every error that durable raises on purpose.

    DurableError
        UsageError                  the call is wrong: fix the code or the command
            InvalidId               an id or key that cannot become an object name
            InvalidDefinition       a function that cannot be a workflow or a step
            InvalidArguments        arguments that do not fit the function, or do not encode
            NotInWorkflow           a durable call outside the task that owns its scope
            UnknownWorkflow         no workflow of that name is registered here
            UnfinishedCalls         a scope was left while calls made in it were never awaited
        NotFound                    no run of that id
        Conflict                    the id belongs to another workflow or another input
        StoreError                  the store
            StoreUnavailable        it did not answer, the outcome is unknown: ask again
            StoreRefused            it answered no for good: fix the set-up
        SingletonTaken              another run of that singleton goes on
        LeaseTaken                  somebody else holds the lease: wait, or leave it to them
        LeaseRefused                the state of the lease says that nothing is left to do
        LeaseLost                   the lease is not ours any more: stop, write nothing
        RunFailed                   the workflow raised; `__cause__` is the rebuilt error
            ChildCancelled          a child run was cancelled
            ChildGone               a child run was purged or restarted before its end was seen
        NeedsAttention              the run waits for a human or for other code
        OutcomeUnknown              whether an at-most-once body did its work is not known
        ProcessDied                 the child process of a step ended before it answered
        CrashLoop                   the run killed every process that carried it
        RunTimeout (TimeoutError)   the run was not over at its deadline
        StepTimeout (TimeoutError)  an attempt of a step did not end in time
        StepFailed                  stands for a step's error whose class cannot be rebuilt
        UnencodableResult           a step or workflow returned what cannot be stored
        WaitTimeout                 the deadline of a wait has passed; a TimeoutError
        InvalidEvent                an event does not fit the type that the wait asks for
        Fatal                       raise it (or a subclass) in a step to stop retries
    RunCancelled (BaseException)    the run was cancelled; `except Exception` lets it pass
    NotRecorded (UserWarning)       a step was called in a thread that its run knows nothing of
    NotRepeatable (UserWarning)     a workflow does what a replay would do otherwise, or again
    NeverAwaited (UserWarning)      a workflow raised, and had made calls that it never awaited

The split is by what the caller does next, as in SlateDB's RFC 0007. A lost race is
never an exception: it is a return value.
"""

from __future__ import annotations


class DurableError(Exception):
    """Base class of every error raised by durable itself."""

    code = "error"

    def __init__(self, message: str, *, hint: str | None = None, run: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.run = run

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(DurableError):
    """The call is wrong; nothing was written."""

    code = "usage"


class InvalidId(UsageError):
    """An id or key is empty, too long, `.`, `..` or has control characters."""

    code = "invalid_id"


class InvalidDefinition(UsageError):
    """A function cannot be decorated: a generator, a lambda without a name, a bad annotation."""

    code = "invalid_definition"


class InvalidArguments(UsageError):
    """The arguments do not fit the function's signature, or cannot be stored."""

    code = "invalid_arguments"


class NotInWorkflow(UsageError):
    """A durable call was made where it cannot be recorded."""

    code = "not_in_workflow"


class UnknownWorkflow(UsageError):
    """No workflow of that name is registered in this process."""

    code = "unknown_workflow"


class UnfinishedCalls(UsageError):
    """A workflow or branch returned while calls made in it were never awaited or not finished."""

    code = "unfinished_calls"


class NotFound(DurableError):
    """There is no run of that id."""

    code = "not_found"


class Conflict(DurableError):
    """The id already belongs to a run of another workflow or with another input."""

    code = "conflict"


class StoreError(DurableError):
    """Something is wrong with the store."""

    code = "store"


class StoreUnavailable(StoreError):
    """The store did not answer; whether the call took effect is unknown. Ask again."""

    code = "store_unavailable"


class StoreRefused(StoreError):
    """The store answered no, and would again: a full disk, a missing bucket, no permission."""

    code = "store_refused"


class SingletonTaken(DurableError):
    """Another run holds the lock of this singleton, and `on_conflict` says to raise, or the wait
    for it took too long.

    Attributes:
        key: of the lock.
        holder: the id of the run that holds it.
        since: since when, in seconds since the epoch by the store's clock.
    """

    code = "singleton_taken"

    def __init__(
        self, message: str, *, key: str = "", holder: str = "", since: float = 0.0
    ) -> None:
        super().__init__(message)
        self.key = key
        self.holder = holder
        self.since = since


class LeaseTaken(DurableError):
    """Somebody else holds the lease, for as long as was waited."""

    code = "lease_taken"


class LeaseRefused(DurableError):
    """The `state_fn` of the acquisition refused: nothing is left to do.

    Attributes:
        reason: what it said.
    """

    code = "lease_refused"

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class LeaseLost(DurableError):
    """The lease is not held here any more: stop what it protected, write nothing in its name."""

    code = "lease_lost"


class RunFailed(DurableError):
    """The workflow raised; `__cause__` is its error, rebuilt where that is safe."""

    code = "run_failed"


class ChildCancelled(RunFailed):
    """A child run was cancelled; raised where its parent waits for it."""

    code = "child_cancelled"


class ChildGone(RunFailed):
    """A child run was purged or restarted before its parent saw its end."""

    code = "child_gone"


class NeedsAttention(DurableError):
    """The run is parked for a human or for another version of the code.

    Attributes:
        reason: one word for the kind of trouble, as in `durable show`.
    """

    code = "needs_attention"

    def __init__(
        self, message: str, *, reason: str = "", hint: str | None = None, run: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, run=run)
        self.reason = reason


class OutcomeUnknown(DurableError):
    """A body that must not run twice began, and what became of it was not recorded.

    Its process died, or lost the run, in the middle of it. It may have done its work, or not: look
    at the outside system, then decide.
    """

    code = "outcome_unknown"


class ProcessDied(DurableError):
    """The child process that ran a step's body ended before it answered; retried like others."""

    code = "process_died"


class CrashLoop(DurableError):
    """The run was alone in several processes that died, and its workflow asks to fail for that."""

    code = "crash_loop"


class RunTimeout(DurableError, TimeoutError):
    """The run was not over within its workflow's `timeout`, and has failed for that."""

    code = "run_timeout"


class StepTimeout(DurableError, TimeoutError):
    """An attempt of a step did not end within its `timeout`; retried like any other failure."""

    code = "step_timeout"


class StepFailed(DurableError):
    """Stands for a recorded error whose own class cannot be rebuilt here.

    Attributes:
        type_name: `module.qualname` of the original class.
        traceback_text: the original traceback as text, never executed.
    """

    code = "step_failed"

    def __init__(self, message: str, *, type_name: str = "", traceback_text: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name
        self.traceback_text = traceback_text


class UnencodableResult(DurableError):
    """A step or workflow returned a value that cannot be stored; it is not retried."""

    code = "unencodable_result"


class WaitTimeout(DurableError, TimeoutError):
    """The durable deadline of a wait, or of a block of code, has passed."""

    code = "wait_timeout"


class InvalidEvent(DurableError):
    """An event was sent whose value does not fit the type that the wait asks for."""

    code = "invalid_event"


class Fatal(DurableError):
    """Raise it, or a subclass, in a step: the error is recorded at once and never retried."""

    code = "fatal"

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class NotRecorded(UserWarning):
    """A step was called where a run's calls do not reach the run: nothing is recorded of it."""


class NotRepeatable(UserWarning):
    """A workflow does something itself that a replay would do otherwise, or again.

    The message begins with the code of the rule, as `durable lint` has it.
    """


class NeverAwaited(UserWarning):
    """A workflow or branch raised, and had made durable calls that it never awaited.

    They were not executed. If it returns instead of raising, that is an error: `UnfinishedCalls`.
    """


class RunCancelled(BaseException):
    """The run was cancelled. Derives from BaseException, so `except Exception` lets it pass."""
