"""Sync code of a run: it runs in threads, which hand durable work to the run's event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from threading import Event
from typing import Any, TypeVar

import anyio
import msgspec

from durable.errors import RunCancelled
from durable.runtime import cleanup
from durable.runtime.gate import Gate
from durable.runtime.news import News
from durable.runtime.scopes import Scope, here
from durable.runtime.threadwatch import ThreadWatch, Ticket, in_thread, mine
from durable.runtime.turns import waker

T = TypeVar("T")


class Unwinding(BaseException):
    """Raised in threads of a run that goes on elsewhere; user code must let it pass."""


class _Asked(msgspec.Struct, frozen=True):
    """Durable work that a thread waits for."""

    work: Callable[[], Coroutine[Any, Any, None]]
    done: Event
    ticket: Ticket | None

    def answer(self) -> None:
        """The thread goes on."""
        if self.ticket is not None:
            self.ticket.works()
        self.done.set()


class Threads:
    """The bridge between one execution and its threads.

    Args:
        spawn: starts a task of the run's own.
        limiter: of threads for workflow functions.

    Attributes:
        watch: those of them that work.
    """

    def __init__(
        self,
        run_id: str,
        gate: Gate,
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
        limiter: anyio.CapacityLimiter,
    ) -> None:
        self._run_id = run_id
        self._gate = gate
        self._spawn = spawn
        self._limiter = limiter
        self._asked: deque[_Asked] = deque()
        self._asking = News()
        self._serving = False
        self.watch = ThreadWatch()

    # -- in the event loop ------------------------------------------------------------------------

    async def run(
        self,
        scope: Scope,
        fn: Callable[..., T],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> T:
        """A sync workflow function in a thread that owns `scope`."""
        if not self._serving:
            self._serving = True
            self._wake = waker()
            self._spawn(self._serve)
        return await in_thread(
            _apply_in, scope, fn, args, kwargs, limiter=self._limiter, of=self.watch
        )

    def let_go(self) -> None:
        """Nothing is served any more: threads that wait go on and find the run closed."""
        while self._asked:
            self._asked.popleft().answer()

    async def _serve(self) -> None:
        """Start what threads ask for: a task group takes no tasks from a bare callback."""
        while True:
            await self._asking.wait()
            while self._asked:
                self._spawn(self._asked.popleft().work)

    def _ask(self, asked: _Asked) -> None:
        if self._gate.ended.is_set():
            asked.answer()
        else:
            if asked.ticket is not None:
                asked.ticket.waits()
            self._asked.append(asked)
            self._asking.tell()

    # -- in a thread ------------------------------------------------------------------------------

    def ask(self, scope: Scope, work: Callable[[], Awaitable[T]]) -> T:
        """Run durable work in the run's event loop; blocks the calling thread.

        Raises:
            Unwinding: the run is closed.
        """
        outcome: list[T] = []
        error: list[BaseException] = []
        cleaning = cleanup.under_way()

        async def in_loop() -> None:
            here.set(scope)
            try:
                with self._gate.wait(scope, shield=True), cleanup.inherited(cleaning):
                    outcome.append(await work())
            except BaseException as e:
                error.append(e)
                if not isinstance(e, Exception | RunCancelled):
                    raise
            finally:
                asked.answer()

        asked = _Asked(in_loop, Event(), mine())
        if self._gate.closing is None:
            self._wake(lambda: self._ask(asked))
            asked.done.wait()
        if outcome:
            return outcome[0]
        if self._gate.closing is None and error and isinstance(error[0], Exception | RunCancelled):
            raise error[0]
        if self._gate.refused_too_often():
            Event().wait()  # the thread swallows everything: it does not come back
        raise Unwinding(f"run {self._run_id!r} goes on elsewhere")


def _apply_in(
    scope: Scope, fn: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> T:
    with scope.entered():
        return fn(*args, **kwargs)
