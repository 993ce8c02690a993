"""An event loop of its own in a thread, on virtual time, and the ways into it from outside."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
)
from typing import Any, Literal, TypeVar

import anyio
import anyio.abc
import anyio.from_thread
import anyio.to_thread

from durable.errors import UsageError
from durable.runtime import threadwatch
from durable.runtime.turns import in_trio
from durable.sync import Answer, answer
from durable.testing.clock import (
    Pending,
    TrioClock,
    VirtualClock,
    VirtualLoop,
    trio_does_io,
)

T = TypeVar("T")
Backend = Literal["asyncio", "trio"]

CLOSING_MAX = 10.0  # real seconds until code that refuses to end is left behind


class Stuck(AssertionError):
    """What the test waits for will never happen: no run can go on and no timer is set."""


class Host:
    """The thread, its loop and its clock.

    Args:
        backend: `asyncio` or `trio`.

    Attributes:
        clock: the loop's.
        in_flight: whether bodies of steps are in flight: only they may do real work.
    """

    def __init__(self, backend: Backend) -> None:
        if backend not in ("asyncio", "trio"):
            raise UsageError(
                f"backend={backend!r} is no event loop", hint="write 'asyncio' or 'trio'"
            )
        self.clock = VirtualClock()
        self.clock.at_work = self._at_work
        self.watch = threadwatch.ThreadWatch()
        self._backend = backend
        self._inside: Callable[[], AbstractAsyncContextManager[object]]
        self.in_flight: Callable[[], bool] = lambda: False
        self._does_io: Callable[[], bool] = trio_does_io
        self._threads: anyio.CapacityLimiter | None = None
        self._failure: BaseException | None = None
        self._opened: Future[anyio.from_thread.BlockingPortal] = Future()
        self._portal: anyio.from_thread.BlockingPortal
        self._thread = threading.Thread(target=self._run, name="durable.testing", daemon=True)
        self._bridges = anyio.CapacityLimiter(math.inf)  # of whoever awaits from another loop

    def open(self, inside: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """Begin the thread; `inside` is entered and left in its loop."""
        self._inside = inside
        self._thread.start()
        self._portal = self._opened.result()

    def close(self) -> None:
        """End it. Code that refuses to end is left behind after a while."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            _where_blocking_is_allowed(
                lambda: self._portal.start_task_soon(self._portal.stop, True)
            )
        self._thread.join(CLOSING_MAX)
        if self._failure is not None:
            raise self._failure

    # -- from outside -----------------------------------------------------------------------------

    def call(self, work: Callable[[], Awaitable[T]], /, pending: Pending | None = None) -> T:
        """Block until it is done; time moves meanwhile, if that is what it needs."""
        if threading.current_thread() is self._thread:
            raise UsageError(
                "a blocking call of the test environment was made inside its own event loop",
                hint="in async steps and workflows use the async environment",
            )
        return _where_blocking_is_allowed(lambda: self._ended(self._begin(work, pending)))

    async def across(self, work: Callable[[], Awaitable[T]], pending: Pending | None = None) -> T:
        """The same for async code of whatever event loop."""
        if threading.current_thread() is self._thread:
            return await work()
        asked: list[Future[Answer[T]]] = []
        given_up = False

        def ask() -> T:
            asked.append(self._begin(work, pending))  # blocks, for a loop of trio's
            if given_up:
                asked[0].cancel()
            return self._ended(asked[0])

        try:
            return await anyio.to_thread.run_sync(
                ask, limiter=self._bridges, abandon_on_cancel=True
            )
        finally:
            given_up = True
            for future in asked:
                future.cancel()

    def wrap_async_context_manager(
        self, manager: AbstractAsyncContextManager[T], /
    ) -> AbstractContextManager[T]:
        """The manager for code outside, entered and left in one task of the loop."""
        return self._portal.wrap_async_context_manager(self._left_in_time(manager))

    @asynccontextmanager
    async def _left_in_time(self, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Time moves while it is entered and while it is left, not between."""
        pending = Pending()
        with self.clock.waiting(pending):
            async with manager as value:
                pending.moves = False
                try:
                    yield value
                finally:
                    pending.moves = True

    def _begin(
        self, work: Callable[[], Awaitable[T]], pending: Pending | None
    ) -> Future[Answer[T]]:
        return self._portal.start_task_soon(self._counted, work, pending or Pending())

    def _ended(self, future: Future[Answer[T]]) -> T:
        try:
            return future.result().given()
        except CancelledError:
            # Not by the caller, who would not be here: the loop has ended under it.
            self._thread.join(CLOSING_MAX)
            if self._failure is not None:
                raise self._failure from None
            raise

    async def _counted(self, work: Callable[[], Awaitable[T]], pending: Pending) -> Answer[T]:
        threadwatch.watch.set(self.watch)  # the context is the caller's
        with self.clock.waiting(pending), anyio.CancelScope() as pending.scope:
            return await answer(work)
        raise Stuck(pending.stuck)

    # -- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        options: dict[str, Any] = {"loop_factory": self._make_loop}
        if self._backend == "trio":
            clock = TrioClock(self.clock)
            options = {"clock": clock, "instruments": [clock]}
        try:
            anyio.run(self._serve, backend=self._backend, backend_options=options)
        except BaseException as e:  # noqa: BLE001  # whoever waits for the opening is told
            self._failure = e
            if not self._opened.done():
                self._opened.set_exception(e)

    def _make_loop(self) -> VirtualLoop:
        loop = VirtualLoop(self.clock)
        self._does_io = loop.does_io
        return loop

    async def _serve(self) -> None:
        threadwatch.watch.set(self.watch)
        self._threads = anyio.to_thread.current_default_thread_limiter()
        async with (
            self._left_in_time(self._inside()),
            anyio.from_thread.BlockingPortal() as portal,
        ):
            self._opened.set_result(portal)
            await portal.sleep_until_stopped()

    def _at_work(self) -> bool:
        if self.watch.busy:
            return True
        if not self.in_flight():
            return False
        return (self._threads is not None and self._threads.borrowed_tokens > 0) or self._does_io()


def _where_blocking_is_allowed(ask: Callable[[], T]) -> T:
    """Here, or in a thread of its own: trio refuses what might block one of its loops."""
    if not in_trio():
        return ask()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(ask).result()
