"""`@step`: a function whose output is recorded once per call."""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast, overload

import msgspec

from durable.decorators.describing import describe, limit
from durable.decorators.functions import Awaited, Durable, P, R, R_co, only_in_threads, plain
from durable.decorators.registry import register
from durable.errors import InvalidDefinition, UsageError
from durable.protocol import values
from durable.protocol.names import check_id
from durable.protocol.retries import Duration, Retry
from durable.runtime import processes
from durable.runtime.calls import StepCall
from durable.runtime.definitions import Durability, StepDefinition, undoable
from durable.runtime.scopes import calling_scope
from durable.runtime.undoing import takes_result


class StepFunction(Durable[P, R_co]):
    """A step: `await f.call(...)` from async code, whatever the function is."""

    definition: StepDefinition
    _key: str | None = None

    def options(
        self,
        *,
        key: str | None = None,
        attempts: int | None = None,
        timeout: Duration | None = None,
    ) -> typing.Self:
        """The same step with other options for the calls made through it.

        Args:
            key: names the call `name=key` instead of counting it, so that it keeps its record
                when calls before it come and go. One key may be used once in a scope.
            attempts: how often the body is tried in all.
            timeout: how long one attempt may take.
        """
        other = copy.copy(self)
        if key is not None:
            check_id(key, what="key")
            other._key = key
        if attempts is not None:
            retry = msgspec.structs.replace(self.definition.retry, attempts=attempts)
            other.definition = msgspec.structs.replace(other.definition, retry=retry)
        if timeout is not None:
            other.definition = msgspec.structs.replace(other.definition, timeout=limit(timeout))
        return other

    def __str__(self) -> str:
        return f"step {self.name!r}"

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Awaited[R_co]:
        """A call to await: recorded inside a run, the plain function outside."""
        scope = calling_scope(self)
        if scope is None:
            return cast("Awaited[R_co]", plain(self.definition, args, kwargs))
        return StepCall(scope, self.definition, args, dict(kwargs), self._key)


class AsyncStep(StepFunction[P, R_co]):
    """An `async def` step: `await f(...)`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaited[R_co]:
        return self.call(*args, **kwargs)


class SyncStep(StepFunction[P, R_co]):
    """A step that is an ordinary function: in a sync workflow simply called."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        scope = calling_scope(self)
        if scope is None:
            return cast("R_co", self.definition.fn(*args, **kwargs))
        only_in_threads(scope, self.name, "step")
        call: StepCall[R_co] = StepCall(scope, self.definition, args, dict(kwargs), self._key)
        return scope.execution.from_thread(scope, lambda: call)


class StepDecorator(Protocol):
    """`@step(...)` with options."""

    # A coroutine function also fits the second overload; the first match counts.
    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first match counts
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncStep[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncStep[P, R]: ...


@overload
def step(  # type: ignore[overload-overlap]  # the first match counts
    fn: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncStep[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> SyncStep[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    attempts: int | None = None,
    retry: Retry | None = None,
    check_args: bool = True,
    timeout: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    at_most_once: bool = False,
    undo: Callable[..., Any] | StepFunction[..., Any] | None = None,
    process: bool = False,
    durability: Durability = "each",
) -> StepDecorator: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    attempts: int | None = None,
    retry: Retry | None = None,
    check_args: bool = True,
    timeout: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    at_most_once: bool = False,
    undo: Callable[..., Any] | StepFunction[..., Any] | None = None,
    process: bool = False,
    durability: Durability = "each",
) -> Any:
    """Make a function a step: its output is recorded once per call and never computed again.

    The body runs at least once; the recorded output is exactly-once.

    Args:
        name: recorded instead of the function's `__qualname__`; needed for lambdas and locals.
        attempts: how often the body is tried in all, with back-off between; default 3.
        retry: the whole retry policy.
        check_args: compare the arguments with the recorded ones on replay; a difference means
            that the code has changed under the run, which then needs attention.
        timeout: how long one attempt may take: seconds, a timedelta or text such as "1h30m".
            Then it fails with StepTimeout, which is retried like other errors. An async body is
            cancelled. A sync body's thread cannot be: the run goes on without it, and the body
            is told by `current().cancelled`.
        heartbeat_timeout: how much time may pass without `current().heartbeat()`; then the attempt
            fails as at its timeout.
        at_most_once: never begin a body twice. If a process dies in the middle of one, the
            workflow gets OutcomeUnknown. Costs one more write; `attempts` is 1 unless given,
            and each attempt is one more body.
        undo: a step or a function that takes back what this step did. Should the run fail or be
            cancelled, the undo actions of all steps that have begun are called, the last begun
            first, each with the arguments of its step, and `result=` if it has such a parameter:
            what the step returned, None if it did not or nobody knows. Costs one more write, and
            the arguments of the step must be such as can be stored.
        process: run the body in a child process, for what computes for long: it has a core of
            its own, and a timeout or a cancellation kills it. The function must stand at the top
            level of a module, its arguments must be what pickle can carry, and it has no
            heartbeat and publishes nothing.
        durability: "group" for a cheap body without outside effects, of which a run calls many.
            Its output is recorded with those of other such calls, in one object, always before
            anything happens that others could see: before the body of an ordinary step begins,
            before the run waits, parks or ends. If the process dies before, the body runs again
            and may come to another value. See docs/how-to/run-many-cheap-steps.md.

    Raises:
        InvalidDefinition: the function cannot be a step.
    """

    def decorate(fn: Callable[..., Any]) -> StepFunction[Any, Any]:
        policy = _policy(retry, attempts, at_most_once=at_most_once)
        definition = StepDefinition(
            **describe(fn, name, "step"), retry=policy, check_args=check_args,
            timeout=limit(timeout),
            heartbeat_timeout=limit(heartbeat_timeout, "heartbeat_timeout"),
            at_most_once=at_most_once, process=process, durability=durability,
        )  # fmt: skip
        if undo is not None:
            definition = _with_undo(definition, undo)
            undoable[definition.name] = definition
        if durability != "each":
            _check_group(definition)
        if process:
            _check_process(definition)
        register(definition)
        return AsyncStep(definition) if definition.is_async else SyncStep(definition)

    return decorate if fn is None else decorate(fn)


def _with_undo(
    definition: StepDefinition, undo: Callable[..., Any] | StepFunction[..., Any]
) -> StepDefinition:
    """The step with its undo action, which must take the same arguments."""
    for parameter, annotation in definition.hints.items():  # with an undo action they are stored
        values.check_annotation(annotation, f"{parameter!r} of step {definition.name}")
    if isinstance(undo, StepFunction):
        action = undo.definition
    else:
        action = StepDefinition(**describe(undo, f"undo {definition.name}", "step"))
    told = {"result": None} if takes_result(action, definition) else {}
    for args, kwargs in _ways_to_call(definition.signature):
        try:
            action.signature.bind(*args, **kwargs, **told)
        except TypeError as e:
            raise InvalidDefinition(
                f"the undo action of step {definition.name!r} does not take the step's "
                f"arguments: {e}",
                hint=f"give it the parameters {definition.signature}, and `result` if it needs "
                "to know what the step returned",
            ) from None
    return msgspec.structs.replace(definition, undo=action)


def _ways_to_call(signature: inspect.Signature) -> list[tuple[list[None], dict[str, None]]]:
    """All parameters by position, as far as possible, and all by name."""
    kinds = inspect.Parameter
    named = [p for p in signature.parameters.values() if p.kind != kinds.VAR_POSITIONAL]
    named = [p for p in named if p.kind != kinds.VAR_KEYWORD]
    first = [None for p in named if p.kind != kinds.KEYWORD_ONLY]
    only = [None for p in named if p.kind == kinds.POSITIONAL_ONLY]
    rest: dict[str, None] = dict.fromkeys(p.name for p in named if p.kind == kinds.KEYWORD_ONLY)
    by_name = dict.fromkeys(p.name for p in named if p.kind != kinds.POSITIONAL_ONLY)
    return [(first, rest), (only, by_name)]


def _policy(retry: Retry | None, attempts: int | None, *, at_most_once: bool) -> Retry:
    if retry is None:
        retry = Retry(attempts=1) if at_most_once else Retry()
    given: object = retry  # callers may not be type-checked
    if not isinstance(given, Retry):
        raise UsageError(
            f"retry must be a Retry, not {given!r}", hint="write `retry=Retry(attempts=5)`"
        )
    return retry if attempts is None else msgspec.structs.replace(retry, attempts=attempts)


def _check_group(definition: StepDefinition) -> None:
    name = definition.name
    if definition.durability != "group":
        raise InvalidDefinition(
            f"step {name!r} has durability={definition.durability!r}",
            hint='"each" records every output by itself, "group" several together',
        )
    if definition.at_most_once or definition.undo is not None:
        option = "at_most_once" if definition.at_most_once else "undo"
        raise InvalidDefinition(
            f"step {name!r} has durability='group', and {option}, which is for outside effects",
            hint="a body whose output is recorded later may run again: leave out one of the two",
        )


def _check_process(definition: StepDefinition) -> None:
    if definition.is_async:
        raise InvalidDefinition(
            f"async step {definition.name!r} cannot run in a child process",
            hint="make it a plain function: what awaits does not need a core of its own",
        )
    if definition.heartbeat_timeout is not None:
        raise InvalidDefinition(
            f"step {definition.name!r} runs in a child process, where it has no heartbeat",
            hint="give it a timeout: that kills its process",
        )
    processes.check(definition.fn, definition.name)
