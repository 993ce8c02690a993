"""Event loops and threads: being woken from another thread, and one thread with a loop of its own.

aiohttp runs on asyncio only. Where trio runs, requests are made in one thread of this process
that runs an asyncio event loop, and a cancellation in trio cancels the request there. Leases are
kept in it, too, so that they are renewed while other event loops are blocked.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel

T = TypeVar("T")

# Runs an async function, with arguments, in a new event loop of the calling thread, to its end.
RunLoop = Callable[..., object]
run_asyncio: RunLoop = partial(anyio.run, backend="asyncio")


def native_loop() -> Any:
    """The running asyncio event loop, or trio's token."""
    token = anyio.lowlevel.current_token()
    return getattr(token, "native_token", token)  # older anyio gives the native one itself


def runs_asyncio(native: Any) -> bool:
    """Whether what `native_loop` gave is an asyncio event loop."""
    return hasattr(native, "call_soon_threadsafe")


async def settled(future: Future[T]) -> T:
    """Wait, in any event loop, for a future that another thread settles."""
    done = anyio.Event()
    native = native_loop()
    wake = native.call_soon_threadsafe if runs_asyncio(native) else native.run_sync_soon

    def tell(_settled: Future[T]) -> None:
        with suppress(RuntimeError):  # this event loop has ended, and whoever waited in it
            wake(done.set)

    future.add_done_callback(tell)
    await done.wait()
    return future.result()


def caller() -> Callable[[Callable[[], object]], bool]:
    """A function that any thread may use to run a callback in this event loop, soon.

    It returns False if the loop has ended, and nothing is run.
    """
    native = native_loop()
    if runs_asyncio(native):
        # In the other side's context anyio would take this event loop for the other side's.
        soon = partial(native.call_soon_threadsafe, context=copy_context())
    else:
        soon = native.run_sync_soon

    def call(callback: Callable[[], object]) -> bool:
        try:
            soon(callback)
        except RuntimeError:  # how both asyncio and trio say that the loop is closed
            return False
        return True

    return call


class IoThread:
    """A thread with an asyncio event loop that does what other event loops ask of it.

    Args:
        run_loop: runs that event loop.

    Attributes:
        loop: the event loop.
    """

    def __init__(self, run_loop: RunLoop = run_asyncio) -> None:
        self._ready = threading.Event()
        self.loop: Any = None
        self._soon: Callable[..., object]
        self._tasks: anyio.abc.TaskGroup
        threading.Thread(
            target=partial(run_loop, self._main),
            name="durable: requests of trio, renewals of leases",
            daemon=True,  # nothing in it needs to be finished when the process ends
        ).start()
        self._ready.wait()

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it there. If the caller is cancelled, so is the work, and nobody waits for it."""
        future: Future[T] = Future()
        self._soon(self._tasks.start_soon, self._carry_out, future, work)
        try:
            return await settled(future)
        finally:
            future.cancel()  # no effect once it is settled

    def start(self, work: Callable[[], Awaitable[object]]) -> None:
        """Begin it there and do not wait for it. It must not raise."""
        self._soon(self._tasks.start_soon, work)

    async def _main(self) -> None:
        self.loop = loop = native_loop()
        # In the caller's own context anyio would take this thread's event loop for trio.
        self._soon = partial(loop.call_soon_threadsafe, context=copy_context())
        async with anyio.create_task_group() as self._tasks:
            self._ready.set()
            await anyio.sleep_forever()

    async def _carry_out(self, future: Future[T], work: Callable[[], Awaitable[T]]) -> None:
        def stop(settled: Future[T]) -> None:
            if settled.cancelled():
                self._soon(scope.cancel)

        with anyio.CancelScope() as scope, suppress(InvalidStateError):
            future.add_done_callback(stop)
            try:
                answer = await work()
            except Exception as e:  # noqa: BLE001  # the caller is told, whatever it is
                future.set_exception(e)
            else:
                future.set_result(answer)


_starting = threading.Lock()
_thread: IoThread | None = None


def io_thread() -> IoThread:
    """The one of this process, started when it is first asked for."""
    global _thread  # noqa: PLW0603  # one per process is the point
    with _starting:
        if _thread is None:
            _thread = IoThread()
        return _thread


def _after_fork() -> None:
    """Threads do not survive a fork, and a lock that one of them held would stay locked."""
    global _starting, _thread  # as above
    _starting, _thread = threading.Lock(), None


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
