"""Concurrency inside a run: `gather` and `map`, each branch a scope of its own.

A branch's paths depend on its index alone, so branches may run in any order and still replay.
Which branch failed first is decided by the order of handing over, which is recorded; so the
decision needs no record of its own. It closes the other branches, which then claim nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import anyio

from durable.errors import RunCancelled, UsageError
from durable.runtime import cleanup
from durable.runtime.calls import Call
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.scopes import Scope
from durable.runtime.turns import strand

T = TypeVar("T")
U = TypeVar("U")

Branch = Callable[[], Awaitable[Any]]


class Branches:
    """Branches of one `gather` or `map`, running side by side.

    Args:
        scope: where the call was made; None outside a run, where nothing is recorded.
        kind: `gather` or `map`.
        limit: how many branches run at once; None for all.
    """

    def __init__(self, scope: Scope | None, kind: str, limit: int | None = None) -> None:
        self._scope = scope
        self._path = scope.reserve(kind) if scope is not None else ""
        self._limit = limit
        self._open: dict[int, tuple[Scope, Sequence[str]]] = {}
        self._running = 0
        self._place = anyio.Event()
        self._errors: list[BaseException] = []
        self._cancelled: RunCancelled | None = None
        self._failed_cleaning: list[BaseException] = []
        self._cleaning = cleanup.under_way()
        self._results: dict[int, Any] = {}

    async def run(self, branches: Iterable[tuple[Branch, Sequence[str]]]) -> list[Any]:
        """Results in the order of the branches; the first error handed over is raised.

        Each branch comes with the paths of calls that it awaits but that were made outside it.
        """
        if self._scope is None:
            await self._run_all(branches)
        else:
            try:
                with self._scope.execution.parking.delegates(self._scope):
                    await self._run_all(branches)
            finally:
                self._scope.finished(self._path)
        if self._errors:
            if self._scope is not None:
                # Tasks of the user's own in a closed branch see the cancellation first.
                await self._scope.execution.turnstile.settled().wait()
            raise self._errors[0]
        if self._cancelled is not None:
            for error in self._failed_cleaning:
                self._cancelled.add_note(f"while cleaning up: {type(error).__name__}: {error}")
            raise self._cancelled
        if self._failed_cleaning:
            raise self._failed_cleaning[0]
        return [self._results[index] for index in range(len(self._results))]

    async def _run_all(self, branches: Iterable[tuple[Branch, Sequence[str]]]) -> None:
        async with anyio.create_task_group() as tasks:
            for index, (branch, paths) in enumerate(branches):
                while self._limit is not None and self._running >= self._limit:
                    self._place = anyio.Event()
                    await self._place.wait()
                if self._errors or self._cancelled is not None:
                    break
                self._running += 1
                tasks.start_soon(self._run_one, index, branch, paths, tasks.cancel_scope)

    async def _run_one(
        self, index: int, branch: Branch, paths: Sequence[str], cancel: anyio.CancelScope
    ) -> None:
        try:
            self._results[index] = await self._in_scope(index, branch, paths)
        except RunCancelled as e:
            # It comes to every branch, and each may have something to clean up.
            self._cancelled = self._cancelled or e
        except (Exception, SystemExit) as e:  # noqa: BLE001  # user code
            if self._cancelled is not None or cleanup.comes_of_cancellation(e):
                self._failed_cleaning.append(e)
            elif not self._errors:
                self._errors.append(e)
                self._decide()
                cancel.cancel()
        finally:
            self._open.pop(index, None)
            self._running -= 1
            self._place.set()
            if self._scope is not None:
                self._scope.execution.moved()

    async def _in_scope(self, index: int, branch: Branch, paths: Sequence[str]) -> Any:
        if self._scope is None:
            return await branch()
        child = self._scope.branch(f"{self._path}/{index}/")
        self._open[index] = (child, paths)
        begun = child.execution.parking.goes_on(child.strand)
        with begun, child.entered(), cleanup.inherited(self._cleaning):
            return await branch()

    def _decide(self) -> None:
        """A branch failed: the others record nothing more, and what they had recorded is moot."""
        for child, paths in self._open.values():
            child.decided = True
            turnstile = child.execution.turnstile
            turnstile.forget([p for p in turnstile.remaining() if p.startswith(child.prefix)])
            turnstile.forget(paths)
            for path in paths:
                assert self._scope is not None
                self._scope.finished(path)
        if self._scope is not None:
            self._scope.execution.decided()


def gather_in(scope: Scope | None, calls: Sequence[Awaitable[Any]]) -> Awaitable[list[Any]]:
    """`gather` for a scope that the caller has checked; its place is reserved now."""
    branches = Branches(scope, "gather")

    def one(call: Awaitable[Any]) -> tuple[Branch, Sequence[str]]:
        async def branch() -> Any:
            return await call

        return branch, [call.path] if isinstance(call, Call) else []

    return branches.run([one(call) for call in calls])


def map_in(
    scope: Scope | None, fn: Callable[[T], Awaitable[U]], items: Iterable[T], limit: int
) -> Awaitable[list[U]]:
    """`map` for a scope that the caller has checked; its place is reserved now."""
    if limit < 1:
        raise UsageError(f"map(limit={limit}): at least one branch must run")
    call: Callable[[T], Awaitable[U]] = getattr(fn, "call", fn)

    def one(item: T) -> tuple[Branch, Sequence[str]]:
        async def branch() -> U:
            return await call(item)

        return branch, ()

    return Branches(scope, "map", limit).run(one(item) for item in items)


async def inline(
    scope: Scope,
    path: str,
    definition: WorkflowDefinition,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """A workflow called inside a workflow: it runs here, in a scope of its own."""
    execution = scope.execution
    try:
        if scope.owner < 0 or scope.owner == strand():
            child = scope.within(f"{path}/")
            return await execution.run_function(definition, child, args, kwargs)
        child = scope.branch(f"{path}/")  # in a task of the user's own
        with execution.parking.goes_on(child.strand):
            return await execution.run_function(definition, child, args, kwargs)
    finally:
        scope.finished(path)
