"""The tasks that a run has beside its function: all end with it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio

Work = Callable[[], Coroutine[Any, Any, None]]


class Helpers:
    """Those of one execution.

    Most runs have none, so they have no task group, which has its price even then.

    Attributes:
        start: starts a task of the owner's, once the execution has begun.
    """

    def __init__(self) -> None:
        self.start: Callable[[Work], object] | None = None
        self._scopes: set[anyio.CancelScope] = set()  # of those that have not come to their end
        self._over = False
        self._none_left: anyio.Event | None = None  # while somebody waits for that

    def spawn(self, work: Work) -> None:
        """Start a task of the run's own."""
        assert self.start is not None
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        if self._over:
            scope.cancel()
        self.start(partial(self._run, work, scope))

    def end(self) -> None:
        """Nothing needs them any more."""
        self._over = True
        for scope in list(self._scopes):
            scope.cancel()

    async def gone(self) -> None:
        """Ends them; returns when there are none."""
        self.end()
        if self._scopes:
            self._none_left = anyio.Event()
            await self._none_left.wait()

    async def _run(self, work: Work, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await work()
        except anyio.get_cancelled_exc_class():
            # Calls of a closed run raise it afresh. It would cancel the owner's other tasks, too.
            pass
        finally:
            self._scopes.discard(scope)
            if not self._scopes and self._none_left is not None:
                self._none_left.set()
