"""`@workflow` and `@step`: ordinary functions made durable, their signatures kept.

A decorated function called outside a run is the plain function. Inside a run a step call is
recorded. Options never mix with the function's own arguments: `charge.options(key="A")(order)`.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import anyio.to_thread
import msgspec

from durable.errors import InvalidDefinition, NotInWorkflow, UsageError
from durable.protocol import durations, values
from durable.protocol.names import check_id
from durable.protocol.queues import Queue, check_priority
from durable.protocol.records import Start
from durable.protocol.retries import Duration, Retry
from durable.protocol.schedules import Schedule
from durable.protocol.singletons import Key, OnConflict
from durable.protocol.singletons import singleton as checked_singleton
from durable.protocol.ticks import check_name as check_schedule_name
from durable.runtime import processes
from durable.runtime.branches import inline
from durable.runtime.calls import StepCall
from durable.runtime.children import ChildHandle, ChildStart
from durable.runtime.definitions import (
    CLEANUP_TIMEOUT,
    Definition,
    StepDefinition,
    WorkflowDefinition,
    undoable,
)
from durable.runtime.scopes import Scope, calling_scope
from durable.runtime.undoing import takes_result

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Awaited = Coroutine[Any, Any, R]

_registry: dict[tuple[type[Definition], str], Definition] = {}


class Durable(Generic[P, R_co]):
    """What steps and workflows have in common: the plain function and its name."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.__wrapped__ = definition.fn
        self.__name__ = getattr(definition.fn, "__name__", definition.name)
        self.__qualname__ = getattr(definition.fn, "__qualname__", definition.name)
        self.__module__ = definition.fn.__module__
        self.__doc__ = definition.fn.__doc__

    @property
    def name(self) -> str:
        """The name it is recorded under."""
        return self.definition.name

    def __repr__(self) -> str:
        return f"<durable {type(self).__name__} {self.name}>"


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
            retry = _with_attempts(self.definition.retry, attempts)
            other.definition = dataclasses.replace(other.definition, retry=retry)
        if timeout is not None:
            other.definition = dataclasses.replace(other.definition, timeout=_limit(timeout))
        return other

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Awaited[R_co]:
        """A call to await: recorded inside a run, the plain function outside."""
        scope = calling_scope(f"step {self.name!r}")
        if scope is None:
            return cast("Awaited[R_co]", _plain(self.definition, args, kwargs))
        return StepCall(scope, self.definition, args, dict(kwargs), self._key)


class AsyncStep(StepFunction[P, R_co]):
    """An `async def` step: `await f(...)`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaited[R_co]:
        return self.call(*args, **kwargs)


class SyncStep(StepFunction[P, R_co]):
    """A step that is an ordinary function: in a sync workflow simply called."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        scope = calling_scope(f"step {self.name!r}")
        if scope is None:
            return cast("R_co", self.definition.fn(*args, **kwargs))
        _only_in_threads(scope, self.name, "step")
        call: StepCall[R_co] = StepCall(scope, self.definition, args, dict(kwargs), self._key)
        return scope.execution.from_thread(scope, lambda: call)


class WorkflowFunction(Durable[P, R_co]):
    """A workflow: start it through a client, or call it inside another to run it inline."""

    definition: WorkflowDefinition
    run_id: str | None = None
    tags: Mapping[str, str] = {}
    detached: bool = False
    priority: int = 0
    dedup_key: str = ""

    def options(
        self,
        *,
        id: str | None = None,
        queue: str | Queue | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        detached: bool | None = None,
        dedup_key: str | None = None,
    ) -> typing.Self:
        """The same workflow with options for the runs started through it.

        Args:
            id: the run's id; starting the same id again returns the same run.
            queue: where workers look for it.
            priority: among those that wait in a limited queue; lower goes first, 0 is usual.
            tags: text shown in lists.
            timeout: how long after its start a run fails unless it is over.
            detached: a child so started goes on when its parent is over.
            dedup_key: while a run of the queue that carries it is not over, a start by a client
                gives that run instead of a second one.
        """
        other = copy.copy(self)
        if id is not None:
            check_id(id)
            other.run_id = id
        if queue is not None:
            name, limits = _queue(queue)
            other.definition = dataclasses.replace(other.definition, queue=name, limits=limits)
        if priority is not None:
            other.priority = check_priority(priority)
        if tags is not None:
            other.tags = dict(tags)
        if timeout is not None:
            other.definition = dataclasses.replace(other.definition, timeout=_limit(timeout))
        if detached is not None:
            other.detached = detached
        if dedup_key is not None:
            check_id(dedup_key, what="dedup_key")
            other.dedup_key = dedup_key
        return other

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Awaited[ChildHandle[R_co]]:
        """Start it as a run of its own, a child of the run that calls this.

        Its id comes from the parent's instance and the place of this call, unless
        `.options(id=...)` gives one. It is cancelled when the parent is over, unless it is
        `.options(detached=True)`.

        Returns:
            To be awaited: a handle, whose `result()` waits for the child's end.

        Raises:
            InvalidArguments: they do not fit the function, or cannot be stored.
            Conflict: when awaited: the id belongs to a run that is no child of this one.
            NotInWorkflow: called outside a run; start it by `client.start(...)` there.
        """
        scope = calling_scope(f"{self.name}.start")
        if scope is None:
            raise NotInWorkflow(
                f"{self.name}.start was called outside a workflow, where it has no parent",
                hint=f"write `client.start({self.name}, ...)`",
            )
        self.refuse_dedup_key("a child has its id from its place in its parent")
        return ChildStart(
            scope, self.definition, (args, kwargs),
            run=self.run_id, tags=self.tags, owned=not self.detached, priority=self.priority,
        )  # fmt: skip

    def refuse_dedup_key(self, why: str) -> None:
        """Where something else already keeps runs apart.

        Raises:
            UsageError: the options give one.
        """
        if self.dedup_key:
            raise UsageError(
                f"dedup_key={self.dedup_key!r} of workflow {self.name}: {why}",
                hint="leave it out here: it is for `client.start` and `client.run`",
            )

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Awaited[R_co]:
        """Run it inline, in a scope of its own, as part of the run that calls it."""
        scope = calling_scope(f"workflow {self.name!r}")
        if scope is None:
            return cast("Awaited[R_co]", _plain(self.definition, args, kwargs))
        path = scope.reserve(self.name)
        return cast("Awaited[R_co]", inline(scope, path, self.definition, args, dict(kwargs)))


class AsyncWorkflow(WorkflowFunction[P, R_co]):
    """An `async def` workflow."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaited[R_co]:
        return self.call(*args, **kwargs)


class SyncWorkflow(WorkflowFunction[P, R_co]):
    """A workflow that is an ordinary function: it runs in a thread, its steps block."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        scope = calling_scope(f"workflow {self.name!r}")
        if scope is None:
            return cast("R_co", self.definition.fn(*args, **kwargs))
        _only_in_threads(scope, self.name, "workflow")
        path = scope.reserve(self.name)
        child = scope.within(f"{path}/")
        with child.entered():
            value = cast("R_co", self.definition.fn(*args, **kwargs))
        scope.finished(path)
        return value


class StepDecorator(Protocol):
    """`@step(...)` with options."""

    # A coroutine function also fits the second overload; the first match counts.
    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first match counts
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncStep[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncStep[P, R]: ...


class WorkflowDecorator(Protocol):
    """`@workflow(...)` with options."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first match counts
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncWorkflow[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncWorkflow[P, R]: ...


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

    Raises:
        InvalidDefinition: the function cannot be a step.
    """

    def decorate(fn: Callable[..., Any]) -> StepFunction[Any, Any]:
        policy = retry or (Retry(attempts=1) if at_most_once else Retry())
        if attempts is not None:
            policy = _with_attempts(policy, attempts)
        definition = StepDefinition(
            **_describe(fn, name, "step"), retry=policy, check_args=check_args,
            timeout=_limit(timeout), heartbeat_timeout=_limit(heartbeat_timeout),
            at_most_once=at_most_once, process=process,
        )  # fmt: skip
        if undo is not None:
            definition = _with_undo(definition, undo)
            undoable[definition.name] = definition
        if process:
            _check_process(definition)
        _register(definition)
        return AsyncStep(definition) if definition.is_async else SyncStep(definition)

    return decorate if fn is None else decorate(fn)


@overload
def workflow(  # type: ignore[overload-overlap]  # the first match counts
    fn: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncWorkflow[P, R]: ...
@overload
def workflow(fn: Callable[P, R], /) -> SyncWorkflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    queue: str | Queue = "default",
    timeout: Duration | None = None,
    schedule: Schedule | None = None,
    events: Mapping[str, object] | None = None,
    cleanup_timeout: Duration = CLEANUP_TIMEOUT,
    singleton: Key | None = None,
    on_conflict: OnConflict = "raise",
    max_wait: Duration | None = None,
    lock_ttl: Duration | None = None,
    label: str = "",
    version: str = "",
    pinned: bool = False,
) -> WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    queue: str | Queue = "default",
    timeout: Duration | None = None,
    schedule: Schedule | None = None,
    events: Mapping[str, object] | None = None,
    cleanup_timeout: Duration = CLEANUP_TIMEOUT,
    singleton: Key | None = None,
    on_conflict: OnConflict = "raise",
    max_wait: Duration | None = None,
    lock_ttl: Duration | None = None,
    label: str = "",
    version: str = "",
    pinned: bool = False,
) -> Any:
    """Make a function a workflow: a run of it survives the death of any process.

    On every resumption the function runs again from the top; calls with a recorded outcome
    return it. So between its durable calls it must do the same each time.

    Args:
        name: recorded instead of the function's `__qualname__`; needed for lambdas and locals.
        queue: where workers look for its runs; a `Queue` limits how many go on at once.
        timeout: how long after its start a run fails with RunTimeout unless it is over, however
            often it was interrupted meanwhile: seconds, a timedelta or text such as "1h30m".
        schedule: `cron(...)` or `every(...)`: workers that serve it also start it, without
            arguments. `current().tick` tells a run which tick it is for.
        events: the types of the events that it waits for, by name: whoever sends one from a
            program that has this code is told at once if the value does not fit.
        cleanup_timeout: how long a cancelled run may clean up, from its first cancelled call on,
            and how long each attempt of an undo action may take; default 5 minutes.
        singleton: a key, or a function of the arguments that gives one: of the runs with one key
            one goes on at a time, across crashes, sleeps and workers.
        on_conflict: what becomes of a run that finds another going on: `raise` SingletonTaken;
            `skip`: it ends with `Skipped`, which names the other; `join`: its outcome is the
            other's; `wait` or `queue`: it waits its turn, parked; `replace`: it cancels the
            other first.
        max_wait: after so long a waiting run fails with SingletonTaken.
        lock_ttl: after so long others may go on although the run is not over.
        label: only workers that have it run this: `durable worker --label gpu`.
        version: recorded when a run starts, shown, and told by `current().version`. Runs of other
            versions go on with this code, call by call, as far as it fits their record. Several
            versions of one name may be defined: each goes on with its own runs, the one defined
            last also with those of versions that are not here.
        pinned: runs of this version are for workers that have it, and for no others.

    Raises:
        InvalidDefinition: the function cannot be a workflow, or a type cannot be stored.
    """
    alone = checked_singleton(singleton, on_conflict=on_conflict, max_wait=max_wait, ttl=lock_ttl)

    def decorate(fn: Callable[..., Any]) -> WorkflowFunction[Any, Any]:
        in_queue, limits = _queue(queue)
        definition = WorkflowDefinition(
            **_describe(fn, name, "workflow"), queue=in_queue, limits=limits,
            timeout=_limit(timeout),
            schedule=schedule, events=dict(events or {}), singleton=alone, label=label,
            cleanup_timeout=durations.seconds(cleanup_timeout), version=version, pinned=pinned,
        )  # fmt: skip
        _check_schedule(definition)
        for event, kind in definition.events.items():
            check_id(event, what="name of an event")
            values.check_annotation(kind, f"event {event!r} of workflow {definition.name}")
        if pinned and not version:
            raise InvalidDefinition(
                f"workflow {definition.name} is pinned to no version", hint='add version="..."'
            )
        definition = _beside_others(definition)
        _register(definition)
        return AsyncWorkflow(definition) if definition.is_async else SyncWorkflow(definition)

    return decorate if fn is None else decorate(fn)


def workflows() -> dict[str, WorkflowDefinition]:
    """Every workflow decorated in this process, by name."""
    return {d.name: d for d in _registry.values() if isinstance(d, WorkflowDefinition)}


def code_for(start: Start) -> WorkflowDefinition | None:
    """The code of this process for a run: of its own version, else that which is defined last."""
    known = workflows().get(start.workflow)
    return None if known is None else known.for_runs_of(start.workflow_version)


def steps() -> dict[str, StepDefinition]:
    """Every step decorated in this process, by name."""
    return {d.name: d for d in _registry.values() if isinstance(d, StepDefinition)}


# -- at decoration --------------------------------------------------------------------------------


def _describe(fn: Callable[..., Any], name: str | None, what: str) -> dict[str, Any]:
    if not hasattr(fn, "__code__"):
        raise InvalidDefinition(f"@{what} takes a function, not {type(fn).__name__}")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise InvalidDefinition(
            f"{fn.__qualname__} is a generator function, which cannot be a {what}: "
            "its progress between two yields cannot be recorded",
            hint="return a list, or make each item a step of its own",
        )
    if name is None:
        name = fn.__qualname__
        if "<lambda>" in name or "<locals>" in name:
            raise InvalidDefinition(
                f"{name} has no name that stays the same",
                hint=f'give it one: @{what}(name="...")',
            )
    check_id(name, what=f"name of a {what}")
    hints = _hints(fn)
    signature = inspect.signature(fn, eval_str=True)
    for parameter, annotation in hints.items():
        # The arguments of a step are not stored: a client or a session is a fine argument.
        if what == "workflow" or parameter == "return":
            values.check_annotation(annotation, f"{parameter!r} of {what} {name}")
    return {
        "name": name,
        "fn": fn,
        "signature": signature,
        "hints": hints,
        "is_async": inspect.iscoroutinefunction(fn),
    }


def _queue(queue: str | Queue) -> tuple[str, Queue | None]:
    """The queue's name, and its limits if it has any."""
    if isinstance(queue, Queue):
        return queue.name, queue
    check_id(queue, what="queue")
    return queue, None


def _check_schedule(definition: WorkflowDefinition) -> None:
    """A schedule of the decorator has no arguments to give."""
    if definition.schedule is None:
        return
    if not isinstance(definition.schedule, Schedule):
        raise InvalidDefinition(
            f"schedule={definition.schedule!r} of workflow {definition.name} is no schedule",
            hint='write schedule=cron("0 2 * * *", tz="Europe/Rome") or schedule=every("15m")',
        )
    check_schedule_name(definition.name)
    try:
        definition.signature.bind()
    except TypeError as e:
        raise InvalidDefinition(
            f"workflow {definition.name} cannot run by a schedule of its own: {e}",
            hint="give each parameter a default, or make schedules with arguments by "
            "`client.schedules.create`",
        ) from e


def _with_undo(
    definition: StepDefinition, undo: Callable[..., Any] | StepFunction[..., Any]
) -> StepDefinition:
    """The step with its undo action, which must take the same arguments."""
    for parameter, annotation in definition.hints.items():  # with an undo action they are stored
        values.check_annotation(annotation, f"{parameter!r} of step {definition.name}")
    if isinstance(undo, StepFunction):
        action = undo.definition
    else:
        action = StepDefinition(**_describe(undo, f"undo {definition.name}", "step"))
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
    return dataclasses.replace(definition, undo=action)


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


def _hints(fn: Callable[..., Any]) -> dict[str, object]:
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except NameError as e:
        raise InvalidDefinition(
            f"an annotation of {fn.__qualname__} does not resolve: {e}",
            hint="import the name at run time, not only under TYPE_CHECKING",
        ) from e


def _beside_others(definition: WorkflowDefinition) -> WorkflowDefinition:
    """With the other versions of the workflow that are known."""
    there = _registry.get((WorkflowDefinition, definition.name))
    if not isinstance(there, WorkflowDefinition):
        return definition
    known = (dataclasses.replace(there, others=()), *there.others)
    for other in known:
        if other.version == definition.version:
            _check_same(other, definition)
    others = tuple(
        other for other in known
        if other.version != definition.version and not _same_source(other.fn, definition.fn)
    )  # fmt: skip
    return dataclasses.replace(definition, others=others)


def _register(definition: Definition) -> None:
    key = (type(definition), definition.name)
    other = _registry.get(key)
    if other is not None and not isinstance(definition, WorkflowDefinition):
        _check_same(other, definition)
    _registry[key] = definition


def _check_same(other: Definition, definition: Definition) -> None:
    if not _same_source(other.fn, definition.fn):
        kind = "workflows" if isinstance(definition, WorkflowDefinition) else "steps"
        raise InvalidDefinition(
            f"two {kind} are named {definition.name!r}: {_where(other.fn)} "
            f"and {_where(definition.fn)}",
            hint='give one of them another name: name="..."',
        )


def _same_source(a: Callable[..., Any], b: Callable[..., Any]) -> bool:
    """A module loaded twice defines the same function twice; so does a notebook cell."""
    one, two = a.__code__, b.__code__
    if two.co_filename.startswith("<"):
        return True
    return (one.co_filename, one.co_firstlineno) == (two.co_filename, two.co_firstlineno)


def _where(fn: Callable[..., Any]) -> str:
    return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"


def _with_attempts(retry: Retry, attempts: int) -> Retry:
    if attempts < 1:
        raise UsageError(f"attempts={attempts}: a step is tried at least once")
    return msgspec.structs.replace(retry, attempts=attempts)


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


def _limit(timeout: Duration | None) -> float | None:
    """In seconds."""
    if timeout is None:
        return None
    length = durations.seconds(timeout)
    if length == 0:
        raise UsageError("timeout=0: nothing ends in no time", hint="leave it out for no limit")
    return length


# -- at the call ----------------------------------------------------------------------------------


async def _plain(definition: Definition, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if definition.is_async:
        return await definition.fn(*args, **kwargs)
    return await anyio.to_thread.run_sync(lambda: definition.fn(*args, **kwargs))


def _only_in_threads(scope: Scope, name: str, what: str) -> None:
    if scope.owner > 0:
        raise NotInWorkflow(
            f"sync {what} {name!r} was called bare in an async workflow, where it would block "
            "the event loop",
            hint=f"write `await {name}.call(...)`",
        )
