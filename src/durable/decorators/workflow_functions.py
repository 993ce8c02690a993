"""`@workflow`: a function whose runs survive the death of any process."""

from __future__ import annotations

import copy
import typing
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, Protocol, cast, get_args, overload

import msgspec

from durable.decorators.describing import describe, length, limit
from durable.decorators.functions import Awaited, Durable, P, R, R_co, only_in_threads, plain
from durable.decorators.registry import beside_others, register
from durable.errors import InvalidDefinition, NotInWorkflow, UsageError
from durable.protocol import texts, values
from durable.protocol.names import check_id
from durable.protocol.queues import Queue, check_priority
from durable.protocol.retries import Duration
from durable.protocol.schedules import Schedule
from durable.protocol.singletons import Key, OnConflict
from durable.protocol.singletons import singleton as checked_singleton
from durable.protocol.ticks import check_name as check_schedule_name
from durable.runtime.branches import inline
from durable.runtime.children import ChildHandle, ChildStart
from durable.runtime.definitions import CLEANUP_TIMEOUT, OnCrashLoop, WorkflowDefinition
from durable.runtime.scopes import calling_scope


class WorkflowFunction(Durable[P, R_co]):
    """A workflow: start it through a client, or call it inside another to run it inline."""

    definition: WorkflowDefinition
    run_id: str | None = None
    tags: Mapping[str, str] = {}
    detached: bool = False
    priority: int = 0
    dedup_key: str = ""
    debounce_key: str = ""

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
        debounce_key: str | None = None,
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
            debounce_key: the run begins once no further start with this key has come for as
                long as its `Queue(debounce=...)` says, and does what the last of them asked for.

        Raises:
            UsageError: both keys are given.
        """
        other = copy.copy(self)
        if id is not None:
            check_id(id)
            other.run_id = id
        if queue is not None:
            name, limits = _queue(queue)
            if queue == other.definition.queue:  # its own by name has its own limits
                limits = other.definition.limits
            other.definition = msgspec.structs.replace(other.definition, queue=name, limits=limits)
        if priority is not None:
            other.priority = check_priority(priority)
        if tags is not None:
            other.tags = texts.check_tags(tags)
        if timeout is not None:
            other.definition = msgspec.structs.replace(other.definition, timeout=limit(timeout))
        if detached is not None:
            other.detached = detached
        if dedup_key is not None:
            check_id(dedup_key, what="dedup_key")
            other.dedup_key = dedup_key
        if debounce_key is not None:
            check_id(debounce_key, what="debounce_key")
            other.debounce_key = debounce_key
        if other.dedup_key and other.debounce_key:
            raise UsageError(
                f"dedup_key={other.dedup_key!r} keeps the first start and "
                f"debounce_key={other.debounce_key!r} the last: only one can hold"
            )
        return other

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Awaited[ChildHandle[R_co]]:
        """Start it as a run of its own, a child of the run that calls this.

        Its id comes from the parent's instance and the place of this call, unless
        `.options(id=...)` gives one. It is cancelled when the parent is over, unless it is
        `.options(detached=True)`. With a `debounce_key` it is no child, and goes on by itself:
        other starts may have begun it, or change what it does.

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
        self.refuse("dedup_key", "a child has its id from its place in its parent")
        return ChildStart(
            scope, self.definition, (args, kwargs),
            run=self.run_id, tags=self.tags, owned=not self.detached, priority=self.priority,
            debounce_key=self.debounce_key,
        )  # fmt: skip

    def refuse(self, option: Literal["dedup_key", "debounce_key"], why: str) -> None:
        """Where something else already keeps runs apart.

        Raises:
            UsageError: the options give such a key.
        """
        if key := getattr(self, option):
            raise UsageError(
                f"{option}={key!r} of workflow {self.name}: {why}",
                hint="leave it out here: it is for `client.start` and `client.run`",
            )

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Awaited[R_co]:
        """Run it inline, in a scope of its own, as part of the run that calls it."""
        scope = calling_scope(f"workflow {self.name!r}")
        if scope is None:
            return cast("Awaited[R_co]", plain(self.definition, args, kwargs))
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
        only_in_threads(scope, self.name, "workflow")
        path = scope.reserve(self.name)
        child = scope.within(f"{path}/")
        with child.entered():
            value = cast("R_co", self.definition.fn(*args, **kwargs))
        scope.finished(path)
        return value


class WorkflowDecorator(Protocol):
    """`@workflow(...)` with options."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first match counts
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncWorkflow[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncWorkflow[P, R]: ...


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
    on_crash_loop: OnCrashLoop = "attention",
    singleton: Key | None = None,
    on_conflict: OnConflict = "raise",
    max_wait: Duration | None = None,
    lock_ttl: Duration | None = None,
    max_attempts: int | None = None,
    attempt_every: Duration | None = None,
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
    on_crash_loop: OnCrashLoop = "attention",
    singleton: Key | None = None,
    on_conflict: OnConflict = "raise",
    max_wait: Duration | None = None,
    lock_ttl: Duration | None = None,
    max_attempts: int | None = None,
    attempt_every: Duration | None = None,
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
        on_crash_loop: what becomes of a run that was alone in five processes which died without
            recording anything: it waits for a human's `attention`, or is to `fail` with CrashLoop,
            and to be undone.
        singleton: a key, or a function of the arguments that gives one: of the runs with one key
            one goes on at a time, across crashes, sleeps and workers.
        on_conflict: what becomes of a run that finds another going on: `raise` SingletonTaken;
            `skip`: it ends with `Skipped`, which names the other; `join`: its outcome is the
            other's; `wait` or `queue`: it waits its turn, parked; `replace`: it cancels the
            other first.
        max_wait: after so long a waiting run fails with SingletonTaken.
        max_attempts: after so many attempts to get the lock, too; the first is made at once.
        attempt_every: between two attempts, in which the run is parked; default 10 seconds.
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
    alone = checked_singleton(
        singleton, on_conflict=on_conflict, max_wait=max_wait, ttl=lock_ttl,
        max_attempts=max_attempts, attempt_every=attempt_every,
    )  # fmt: skip

    if label != "":
        check_id(label, what="label")

    def decorate(fn: Callable[..., Any]) -> WorkflowFunction[Any, Any]:
        in_queue, limits = _queue(queue)
        definition = WorkflowDefinition(
            **describe(fn, name, "workflow"), queue=in_queue, limits=limits,
            timeout=limit(timeout),
            schedule=schedule, events=_events(events), singleton=alone, label=label,
            cleanup_timeout=length(cleanup_timeout, "cleanup_timeout"),
            version=version, pinned=pinned, on_crash_loop=_checked(on_crash_loop),
        )  # fmt: skip
        _check_schedule(definition)
        for event, kind in definition.events.items():
            check_id(event, what="name of an event")
            values.check_annotation(kind, f"event {event!r} of workflow {definition.name}")
        if version != "":
            check_id(version, what="version")
        if not isinstance(pinned, bool):
            raise InvalidDefinition(f"pinned={pinned!r}: write True or False")
        if pinned and not version:
            raise InvalidDefinition(
                f"workflow {definition.name} is pinned to no version", hint='add version="..."'
            )
        definition = beside_others(definition)
        register(definition)
        return AsyncWorkflow(definition) if definition.is_async else SyncWorkflow(definition)

    return decorate if fn is None else decorate(fn)


def _queue(queue: str | Queue) -> tuple[str, Queue | None]:
    """The queue's name, and its limits if it has any."""
    if isinstance(queue, Queue):
        return queue.name, queue
    check_id(queue, what="queue")
    return queue, None


def _events(events: Mapping[str, object] | None) -> dict[str, object]:
    if events is not None and not isinstance(events, Mapping):
        raise UsageError(
            f"events must be a dict, not {type(events).__name__}", hint='write events={"paid": int}'
        )
    return dict(events or {})


def _checked(on_crash_loop: OnCrashLoop) -> OnCrashLoop:
    if on_crash_loop not in get_args(OnCrashLoop):
        raise UsageError(
            f"on_crash_loop={on_crash_loop!r} is none of {', '.join(get_args(OnCrashLoop))}"
        )
    return on_crash_loop


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
