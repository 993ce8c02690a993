"""`gather`, `map` and `select`: several durable calls at once, each branch a scope of its own.

Inside a run they make its order of calls repeatable. Outside, where nothing is recorded, they
are plain concurrency.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeVar, overload

from durable.errors import NotInWorkflow, NotRepeatable, UsageError
from durable.runtime.branches import gather_in, map_in, select_in
from durable.runtime.scopes import Scope, calling_scope

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
T = TypeVar("T")
U = TypeVar("U")

Calls = Coroutine[Any, Any, T]

T_contra = TypeVar("T_contra", contravariant=True)
U_co = TypeVar("U_co", covariant=True)


class HasCall(Protocol[T_contra, U_co]):
    """A step or workflow, sync or async: what it returns is awaited through `call`."""

    def call(self, item: T_contra, /) -> Awaitable[U_co]: ...


MAP_LIMIT = 50  # branches of one `map` at once, unless the caller says otherwise


@overload
def gather(a: Awaitable[A], b: Awaitable[B], /) -> Calls[tuple[A, B]]: ...
@overload
def gather(a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> Calls[tuple[A, B, C]]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
) -> Calls[tuple[A, B, C, D]]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], e: Awaitable[E], /
) -> Calls[tuple[A, B, C, D, E]]: ...
@overload
def gather(*calls: Awaitable[T]) -> Calls[tuple[T, ...]]: ...
def gather(*calls: Awaitable[Any]) -> Calls[tuple[Any, ...]]:
    """Await several calls, or helpers that make calls, side by side.

    The first error that is handed over is raised; the other branches are closed and record
    nothing more.

    Returns:
        To be awaited: a tuple of the results, in the order of the calls.

    Raises:
        NotInWorkflow: made in a task or thread that does not own the scope.
        UsageError: an argument cannot be awaited.
    """
    scope = _async_scope("gather")
    check_awaitable(calls)
    return _as_tuple(gather_in(scope, calls))


@overload
def map(
    fn: HasCall[T, U],
    items: Iterable[T],
    *,
    limit: int = MAP_LIMIT,
    tolerate: float | str | None = None,
    enough: int | None = None,
    collect: Literal[False] = False,
) -> Calls[list[U]]: ...
@overload
def map(
    fn: Callable[[T], Awaitable[U]],
    items: Iterable[T],
    *,
    limit: int = MAP_LIMIT,
    tolerate: float | str | None = None,
    enough: int | None = None,
    collect: Literal[False] = False,
) -> Calls[list[U]]: ...
@overload
def map(
    fn: HasCall[T, U] | Callable[[T], Awaitable[U]],
    items: Iterable[T],
    *,
    limit: int = MAP_LIMIT,
    tolerate: float | str | None = None,
    enough: int | None = None,
    collect: Literal[True],
) -> Calls[list[U | BaseException]]: ...
def map(
    fn: Any,
    items: Iterable[Any],
    *,
    limit: int = MAP_LIMIT,
    tolerate: float | str | None = None,
    enough: int | None = None,
    collect: bool = False,
) -> Calls[list[Any]]:
    """Call `fn` on each item, `limit` at a time, started in the order of the items.

    Args:
        fn: a step, a workflow or an async helper that makes calls.
        items: read as places become free.
        limit: how many branches run at once.
        tolerate: how many items may fail: a count, or a share of them such as `"10%"`. One more
            closes the other branches and raises the first error. By default none may; with
            `enough`, as many as leave that many.
        enough: as soon as so many items have succeeded the other branches are closed.
        collect: put the error of an item that failed in its place; without, it is left out.

    Returns:
        To be awaited: a list of the results, in the order of the items; with `enough`, those of
        the items that succeeded first.

    Raises:
        NotInWorkflow: made in a task or thread that does not own the scope.
        UsageError: an option is out of range, or the items cannot be counted.
    """
    check_mappable(fn, items)
    scope = _async_scope("map")
    warn_of_unordered(scope, items)
    return _all(
        map_in(
            scope, _awaiting(fn), items, limit, tolerate=tolerate, enough=enough, collect=collect
        )
    )


def select(**calls: Awaitable[Any]) -> Calls[tuple[str, Any]]:
    """Await the first of several calls to end; the others are closed and record nothing more.

    Steps, sleeps, waits for events, children and helpers that make calls can be mixed:

        winner, value = await select(approved=wait_event("ok"), late=sleep("2d"))

    Which one won is recorded before the code goes on, and stays so.

    Args:
        calls: by the names that tell them apart, here and in the run's record.

    Returns:
        To be awaited: the name of the call that ended first, and its value.

    Raises:
        NotInWorkflow: made in a task or thread that does not own the scope.
        UsageError: there is no call, or an argument cannot be awaited.
    """
    scope = _async_scope("select")
    check_selectable(calls)
    return _pair(select_in(scope, calls))


def check_selectable(calls: Mapping[str, object]) -> None:
    """Refuse what `select` cannot wait for, before anything is begun.

    Raises:
        UsageError: there is nothing, or something that is no call.
    """
    if not calls:
        raise UsageError("select needs at least one call", hint="write `select(name=call)`")
    check_awaitable(calls.values(), "select")


def check_awaitable(calls: Iterable[object], word: str = "gather") -> None:
    """Refuse what cannot be awaited, before anything is begun.

    Raises:
        UsageError: an argument is not a call.
    """
    for call in calls:
        if not inspect.isawaitable(call):
            hint = "write `gather(*calls)`" if isinstance(call, list | tuple) else None
            raise UsageError(
                f"{word} takes calls to await, not {type(call).__name__}",
                hint=hint or f"call a sync step as `step.call(...)` inside {word}",
            )


def check_mappable(fn: object, items: object) -> None:
    """Refuse what `map` cannot call, or cannot go through, before anything is begun.

    Raises:
        UsageError: that is no function, or these are no items.
    """
    if not callable(getattr(fn, "call", fn)):
        raise UsageError(
            f"map takes a step or a function, and items, not {type(fn).__name__} first",
            hint="write `map(step, items)`",
        )
    if not isinstance(items, Iterable) and not hasattr(items, "__getitem__"):
        raise UsageError(
            f"map goes through items, and {type(items).__name__} has none",
            hint="collect what comes from an `async for` in a step first",
        )


def warn_of_unordered(scope: Scope | None, items: object) -> None:
    """The branches of a `map` are told apart by their place; a set has no places."""
    if scope is not None and isinstance(items, set | frozenset):
        warnings.warn(
            "DUR008: map over a set, which may have another order on a replay; use "
            "map(fn, sorted(items))",
            NotRepeatable,
            stacklevel=3,
        )


def _async_scope(word: str) -> Scope | None:
    scope = calling_scope(word)
    if scope is not None and scope.owner < 0:
        raise NotInWorkflow(
            f"durable.{word} was called in a sync workflow, which cannot await it",
            hint=f"write `durable.sync.{word}(...)`",
        )
    return scope


def _awaiting(fn: Callable[[T], Awaitable[U]]) -> Callable[[T], Awaitable[U]]:
    call: Callable[[T], Awaitable[U]] = getattr(fn, "call", fn)

    async def branch(item: T) -> U:
        made = call(item)
        if not inspect.isawaitable(made):
            raise UsageError(
                f"map takes a step or an async function; {getattr(fn, '__name__', fn)!r} "
                f"returned {type(made).__name__}",
                hint="make it `async def`, or decorate it with @step",
            )
        return await made

    return branch


async def _as_tuple(results: Awaitable[list[Any]]) -> tuple[Any, ...]:
    return tuple(await results)


async def _pair(result: Awaitable[tuple[str, Any]]) -> tuple[str, Any]:
    return await result


async def _all(results: Awaitable[list[U]]) -> list[U]:
    return await results
