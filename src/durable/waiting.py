"""`sleep`, `sleep_until`, `wait_event` and `timeout`: waiting that survives the process.

A wait has one absolute deadline, stored when it begins. A long one parks the run: it then takes
no memory and no place in a worker, and costs nothing until it is woken. Called outside a run, a
sleep is an ordinary one.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, TypeVar, overload

import anyio

from durable.errors import NotInWorkflow, UsageError, WaitTimeout
from durable.protocol import durations, moments
from durable.protocol.names import check_id
from durable.runtime.blocks import Block
from durable.runtime.scopes import Current, Scope, calling_scope, here
from durable.runtime.waits import EventWait, Sleep
from durable.system import System

T = TypeVar("T")

Duration = float | str | timedelta


def sleep(duration: Duration) -> Coroutine[Any, Any, None]:
    """Wait for some time from now on.

    The deadline is fixed when the sleep begins and stored once; a run that is resumed later goes
    on waiting for the same moment, or goes on at once if it has passed.

    Args:
        duration: seconds, a timedelta, or text: `await sleep("1h30m")`.

    Raises:
        UsageError: it is negative, infinite, not a number, or ends after the year 9999.
        NotInWorkflow: called in a step's body, or in a task that does not own the scope.
    """
    _async_only(scope := wait_scope("sleep"), "sleep")
    return sleep_in(scope, duration)


def sleep_until(moment: datetime) -> Coroutine[Any, Any, None]:
    """Wait until that moment, by the store's clock; one in the past is over at once.

    Args:
        moment: with a time zone.

    Raises:
        UsageError: it has no time zone, or is no datetime.
        NotInWorkflow: as `sleep`.
    """
    _async_only(scope := wait_scope("sleep_until"), "sleep_until")
    return sleep_until_in(scope, moment)


@overload
def wait_event(name: str, *, timeout: Duration | None = None) -> Coroutine[Any, Any, Any]: ...
@overload
def wait_event(
    name: str, type: type[T], *, timeout: Duration | None = None
) -> Coroutine[Any, Any, T]: ...
@overload
def wait_event(
    name: str, type: object, *, timeout: Duration | None = None
) -> Coroutine[Any, Any, Any]: ...
def wait_event(
    name: str, type: object = None, *, timeout: Duration | None = None
) -> Coroutine[Any, Any, Any]:
    """Wait for an event that somebody sends to the run, and return its value.

    Each event reaches at most one wait; those of one name come in the order in which they were
    sent. One that was sent before the run began to wait is kept for it.

    Args:
        name: of the event.
        type: what its value must be, as an annotation; by default what the workflow declares in
            `@workflow(events={name: type})`.
        timeout: how long to wait at most, from the first begin of the wait.

    Raises:
        WaitTimeout: nothing came in that time; a TimeoutError.
        InvalidEvent: what came does not fit the type. The event is used up.
        UsageError: the timeout cannot be read.
        NotInWorkflow: called outside a run, or as `sleep`.
    """
    _async_only(scope := wait_scope("wait_event"), "wait_event")
    return wait_event_in(scope, name, type, timeout)


def timeout(duration: Duration) -> AbstractAsyncContextManager[None]:
    """A block of code under a durable deadline.

        async with timeout("5m"):
            await charge(order)

    The deadline is fixed when the block is first entered and stored once. When it passes, the
    calls of the block that are not over are closed and record nothing more; that it has passed is
    recorded, and replay cuts the block off in the same place.

    Raises:
        WaitTimeout: by the block, if the deadline passes before its end; a TimeoutError.
        UsageError: the duration cannot be read.
        NotInWorkflow: as `sleep`.
    """
    _async_only(scope := wait_scope("timeout"), "timeout")
    seconds = durations.seconds(duration)
    return _plain_timeout(seconds) if scope is None else timeout_in(scope, seconds)


@contextlib.asynccontextmanager
async def _plain_timeout(seconds: float) -> AsyncIterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as e:
        raise WaitTimeout(f"the block was not over after {seconds:g} s") from e


# -- for async and sync words ----------------------------------------------------------------------


def wait_scope(word: str) -> Scope | None:
    """The scope in which a wait is made; None outside a run.

    Raises:
        NotInWorkflow: in a step's body, or in a task that does not own the scope.
    """
    check_not_in_step(word)
    return calling_scope(word)


def check_not_in_step(word: str) -> None:
    """Refuse to wait in a step's body.

    Raises:
        NotInWorkflow: this is one.
    """
    if isinstance(here.get(), Current):
        raise NotInWorkflow(
            f"{word} was called in the body of a step, whose time is not durable",
            hint="wait in the workflow, between two steps",
        )


def sleep_in(scope: Scope | None, duration: Duration) -> Coroutine[Any, Any, None]:
    """`sleep` for a scope that the caller has checked."""
    seconds = durations.seconds(duration)
    if scope is None:
        return anyio.sleep(seconds)
    _deadline(scope.execution.waits.now() + seconds)
    return Sleep(scope, lambda begun: begun + seconds)


def sleep_until_in(scope: Scope | None, moment: datetime) -> Coroutine[Any, Any, None]:
    """`sleep_until` for a scope that the caller has checked."""
    given: object = moment  # callers may not be type-checked
    if not isinstance(given, datetime):
        raise UsageError(
            f"sleep_until takes a datetime, not {type(given).__name__}",
            hint="a length of time is for `sleep`",
        )
    if moment.tzinfo is None:
        raise UsageError(
            f"sleep_until({moment.isoformat()}): the time zone is missing",
            hint="write datetime(..., tzinfo=UTC), or with another zone",
        )
    due = moment.timestamp()
    if scope is None:
        return anyio.sleep(max(0.0, due - System().wall()))
    _deadline(due)
    return Sleep(scope, lambda begun: due)


def wait_event_in(
    scope: Scope | None, name: str, kind: object, timeout: Duration | None
) -> Coroutine[Any, Any, Any]:
    """`wait_event` for a scope that the caller has checked."""
    check_id(name, what="name of an event")
    seconds = None if timeout is None else durations.seconds(timeout)
    if scope is None:
        raise NotInWorkflow(f"wait_event({name!r}) was called outside a run: nobody can send to it")
    if seconds is not None:
        _deadline(scope.execution.waits.now() + seconds)
    return EventWait(scope, name, scope.execution.event_type(name, kind), seconds)


def timeout_in(scope: Scope, seconds: float) -> Block:
    """`timeout` for a scope that the caller has checked."""
    _deadline(scope.execution.waits.now() + seconds)
    return Block(scope, seconds)


def _deadline(due: float) -> None:
    if due > moments.LATEST:
        raise UsageError(
            "the wait would end after the year 9999",
            hint="wait for an event instead, or in a loop",
        )


def _async_only(scope: Scope | None, word: str) -> None:
    if scope is not None and scope.owner < 0:
        raise NotInWorkflow(
            f"durable.{word} was called in a sync workflow, which cannot await it",
            hint=f"write `durable.sync.{word}(...)`",
        )
