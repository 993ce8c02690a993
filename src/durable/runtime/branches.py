"""Concurrency inside a run: `gather`, `map` and `select`, each branch a scope of its own.

A branch's paths depend on its index or name alone, so branches may run in any order and still
replay. What decides is told by a rule (see `deciding`); the decision closes the other branches,
which then claim nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import anyio.abc

from durable.errors import RunCancelled, UsageError
from durable.protocol.names import encode_part
from durable.runtime import cleanup
from durable.runtime.calls import Call
from durable.runtime.deciding import Rule, Verdict, tolerance
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.news import News
from durable.runtime.scopes import Scope, here
from durable.runtime.turns import strand

T = TypeVar("T")
U = TypeVar("U")

Branch = Callable[[], Awaitable[Any]]


class Branches:
    """Branches of one `gather`, `map` or `select`, running side by side.

    Args:
        scope: where the call was made; None outside a run, where nothing is recorded.
        kind: which of the three.
        limit: how many branches run at once; None for all.
        rule: when it is decided.
        label: how a branch stands in paths, by its index.
    """

    def __init__(
        self,
        scope: Scope | None,
        kind: str,
        *,
        limit: int | None = None,
        rule: Rule | None = None,
        label: Callable[[int], str] = str,
    ) -> None:
        self._scope = scope
        self._verdict = None if scope is None else Verdict(scope, kind)
        self._limit = limit
        self._rule = rule or Rule()
        self._label = label
        self._open: dict[int, tuple[Scope, Sequence[str]]] = {}
        self._running = 0
        self._place = News()
        self._decided = False
        self._cancelled: RunCancelled | None = None
        self._failed_cleaning: list[BaseException] = []
        self._cleaning = cleanup.under_way()
        self.results: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}

    async def run(self, branches: Iterable[tuple[Branch, Sequence[str]]]) -> list[int]:
        """The branches that count, in the order in which they ended, unless too many failed.

        Each branch comes with the paths of calls that it awaits but that were made outside it.
        """
        await self._until_decided(branches)
        if self._cancelled is not None:
            for error in self._failed_cleaning:
                self._cancelled.add_note(f"while cleaning up: {type(error).__name__}: {error}")
            raise self._cancelled
        if self._failed_cleaning:
            raise self._failed_cleaning[0]
        if self._rule.is_failed:
            raise self._failure()
        return self._rule.counted(self._rule.succeeded)

    def _failure(self) -> BaseException:
        failed = self._rule.counted(self._rule.failed)
        first = self.errors[failed[0]]
        if len(failed) > 1:
            first.add_note(f"{len(failed)} branches failed; {self._rule.tolerated:g} may")
        return first

    async def _until_decided(self, branches: Iterable[tuple[Branch, Sequence[str]]]) -> None:
        scope, verdict = self._scope, self._verdict
        if scope is None or verdict is None:
            return await self._run_all(branches)
        execution = scope.execution
        self._rule.recorded = verdict.recorded()
        try:
            with execution.parking.delegates(scope):
                await self._run_all(branches)
            if self._decided:
                # Tasks of the user's own in a closed branch see the cancellation first.
                await execution.turnstile.settled().wait()
                if self._must_be_recorded(verdict):
                    verdict.winners = self._rule.decisive
                    await verdict
        finally:
            scope.finished(verdict.path)

    def _must_be_recorded(self, verdict: Verdict) -> bool:
        """See `deciding`. What is recorded is handed over in its turn."""
        if self._rule.enough is not None or self._rule.recorded is not None:
            return True
        return verdict.scope.execution.has_unrecorded_sleeps

    async def _run_all(self, branches: Iterable[tuple[Branch, Sequence[str]]]) -> None:
        broken: Exception | None = None
        async with anyio.create_task_group() as tasks:
            try:
                await self._begin_all(branches, tasks)
            except Exception as e:  # noqa: BLE001  # what gives the items is user code
                broken = e  # raised as it is, not in the group's wrapping
                tasks.cancel_scope.cancel()
        if broken is not None:
            raise broken

    async def _begin_all(
        self, branches: Iterable[tuple[Branch, Sequence[str]]], tasks: anyio.abc.TaskGroup
    ) -> None:
        for index, (branch, paths) in enumerate(branches):
            while self._limit is not None and self._running >= self._limit:
                await self._place.wait()
            if self._decided or self._cancelled is not None:
                break
            self._running += 1
            tasks.start_soon(self._run_one, index, branch, paths, tasks.cancel_scope)

    async def _run_one(
        self, index: int, branch: Branch, paths: Sequence[str], cancel: anyio.CancelScope
    ) -> None:
        try:
            self.results[index] = await self._in_scope(index, branch, paths)
            self._ended(index, cancel, failed=False)
        except RunCancelled as e:
            # It comes to every branch, and each may have something to clean up.
            self._cancelled = self._cancelled or e
        except (Exception, SystemExit) as e:  # noqa: BLE001  # user code
            if self._cancelled is not None or cleanup.comes_of_cancellation(e):
                self._failed_cleaning.append(e)
            elif not self._decided:
                self.errors[index] = e
                self._ended(index, cancel, failed=True)
        finally:
            self._open.pop(index, None)
            self._running -= 1
            self._place.tell()
            if self._scope is not None:
                self._scope.execution.moved()

    async def _in_scope(self, index: int, branch: Branch, paths: Sequence[str]) -> Any:
        if self._scope is None:
            return await branch()
        assert self._verdict is not None
        child = self._scope.branch(f"{self._verdict.path}/{encode_part(self._label(index))}/")
        self._open[index] = (child, paths)
        begun = child.execution.parking.goes_on(child.strand)
        with begun, child.entered(), cleanup.inherited(self._cleaning):
            return await branch()

    def _ended(self, index: int, cancel: anyio.CancelScope, *, failed: bool) -> None:
        self._open.pop(index, None)
        if self._decided or self._cancelled is not None:
            return  # a cancelled run leaves its branches to clean up
        if self._rule.ended(index, failed=failed):
            self._decided = True
            self._close_others()
            cancel.cancel()

    def _close_others(self) -> None:
        """The others record nothing more, and what they had recorded is moot."""
        for child, paths in self._open.values():
            child.decided = True
            child.execution.forget(child.prefix, paths)
            for path in paths:
                assert self._scope is not None
                self._scope.finished(path)
        if self._scope is not None:
            self._scope.execution.decided()


def gather_in(scope: Scope | None, calls: Sequence[Awaitable[Any]]) -> Awaitable[list[Any]]:
    """`gather` for a scope that the caller has checked; its place is reserved now."""
    branches = Branches(scope, "gather")

    async def run() -> list[Any]:
        await branches.run(_awaiting(call) for call in calls)
        return [branches.results[index] for index in range(len(branches.results))]

    return run()


def select_in(
    scope: Scope | None, calls: Mapping[str, Awaitable[Any]]
) -> Awaitable[tuple[str, Any]]:
    """`select` for a scope that the caller has checked; its place is reserved now."""
    names = list(calls)
    branches = Branches(scope, "select", rule=Rule(enough=1), label=names.__getitem__)

    async def run() -> tuple[str, Any]:
        (index,) = await branches.run(_awaiting(call) for call in calls.values())
        return names[index], branches.results[index]

    return run()


def _awaiting(call: Awaitable[Any]) -> tuple[Branch, Sequence[str]]:
    async def branch() -> Any:
        return await call

    return branch, [call.path] if isinstance(call, Call) else []


def map_in(
    scope: Scope | None,
    fn: Callable[[T], Awaitable[U]],
    items: Iterable[T],
    limit: int,
    *,
    tolerate: float | str | None = None,
    enough: int | None = None,
    collect: bool = False,
) -> Awaitable[list[Any]]:
    """`map` for a scope that the caller has checked; its place is reserved now."""
    if not _is_count(limit):
        raise UsageError(f"map(limit={limit!r}): write a whole number of branches, from 1 on")
    if enough is not None and not _is_count(enough):
        raise UsageError(f"map(enough={enough!r}): write a whole number of items, from 1 on")
    call: Callable[[T], Awaitable[U]] = getattr(fn, "call", fn)
    rule = Rule(tolerated=tolerance(tolerate, items, enough), enough=enough)
    branches = Branches(scope, "map", limit=limit, rule=rule)

    def one(item: T) -> tuple[Branch, Sequence[str]]:
        async def branch() -> U:
            return await call(item)

        return branch, ()

    async def run() -> list[Any]:
        counted = await branches.run(one(item) for item in items)
        found = branches.results
        if collect:
            found = {**branches.errors, **found}
        if enough is not None:
            found = {index: found[index] for index in counted[:enough]}
        return [found[index] for index in sorted(found)]

    return run()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


async def inline(
    scope: Scope,
    path: str,
    definition: WorkflowDefinition,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """A workflow called inside a workflow: it runs here, in a scope of its own."""
    execution = scope.execution
    place = here.get()  # made in `scope`, it may be awaited in a branch of a `gather`
    try:
        if isinstance(place, Scope) and (place.owner < 0 or place.owner == strand()):
            child = place.within(f"{path}/")
            return await execution.run_function(definition, child, args, kwargs)
        child = scope.branch(f"{path}/")  # in a task of the user's own
        with execution.parking.goes_on(child.strand):
            return await execution.run_function(definition, child, args, kwargs)
    finally:
        scope.finished(path)
