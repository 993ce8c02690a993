"""Turns of the event loop, and which task or thread is running.

The only module that knows that asyncio and trio differ here. Everything else is anyio.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Generator
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from durable.system import thread_id


@types.coroutine
def _asyncio_turn() -> Generator[None, None, None]:
    # What asyncio's own sleep(0) does; 6 times cheaper than a cancel-shielded anyio checkpoint.
    yield


async def turn() -> None:
    """Let every other runnable task run once."""
    if in_trio():
        await anyio.lowlevel.checkpoint()
    else:
        await _asyncio_turn()


def in_trio() -> bool:
    """Whether this code runs in trio."""
    if "trio" not in sys.modules:
        return False
    lowlevel: Any = sys.modules["trio"].lowlevel
    return bool(lowlevel.in_trio_run())


def strand() -> int:
    """The identity of the running task, or of the thread where no event loop runs.

    A scope belongs to one strand; a call is legal in the strand that owns the scope.
    """
    if "trio" in sys.modules and in_trio():
        return anyio.get_current_task().id
    # The id that anyio gives, without the description of the task that it makes each time.
    task = _asyncio_task()
    return id(task) if task is not None else -thread_id()


def in_task() -> bool:
    """Whether a task is running: not so in a bare callback of the event loop, nor in a thread."""
    return in_trio() or _asyncio_task() is not None


def is_bare_thread() -> bool:
    """Whether this is neither the main thread nor one in which an event loop runs."""
    return strand() < 0 and threading.current_thread() is not threading.main_thread()


def _asyncio_task() -> object:
    """The running asyncio task; None in a thread without an event loop."""
    asyncio: Any = sys.modules.get("asyncio")
    try:
        return None if asyncio is None else asyncio.current_task()
    except RuntimeError:
        return None


class Requests(msgspec.Struct, frozen=True):
    """The native cancellations that an asyncio task had at some moment.

    Whoever cancelled may take it back, as `asyncio.timeout` does when its block ends.
    """

    task: Any
    count: int

    def taken_back(self) -> bool:
        return bool(self.task.cancelling() < self.count)


def cancel_requests() -> Requests | None:
    """Those of the running task; None where nothing cancels natively."""
    count = cancel_count()
    return Requests(sys.modules["asyncio"].current_task(), count) if count else None


def cancel_count() -> int:
    """How often the running asyncio task has been cancelled and it was not taken back."""
    if "trio" in sys.modules and in_trio():
        return 0
    task: Any = sys.modules["asyncio"].current_task()
    return int(task.cancelling()) if task is not None else 0


def cancelled_since(count: int) -> bool:
    """Whether a cancellation that was just caught comes from outside.

    In asyncio, code that awaits a cancelled future raises the same exception of its own accord.
    """
    return in_trio() or cancel_count() > count


async def cancellation() -> BaseException:
    """The exception with which this event loop cancels, made fresh.

    trio.Cancelled cannot be constructed, so a scope of our own is cancelled and what a
    checkpoint in it raises is caught. Yields first: a caller that swallows it must not spin.
    """
    await anyio.lowlevel.cancel_shielded_checkpoint()
    caught: BaseException | None = None
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class() as e:
            caught = e
    assert caught is not None
    return caught


def is_cancellation(error: BaseException) -> bool:
    """Whether it is the exception with which an event loop cancels."""
    modules = (("asyncio", "CancelledError"), ("trio", "Cancelled"))
    classes = [getattr(sys.modules.get(module), name, None) for module, name in modules]
    return any(kind is not None and isinstance(error, kind) for kind in classes)


def clock() -> Callable[[], float]:
    """A function that tells this event loop's time, in its bare callbacks too.

    There anyio does not know which library it is in.
    """
    native: Any = anyio.lowlevel.current_token().native_token
    time: Callable[[], float] = getattr(native, "time", None) or anyio.current_time
    return time


def waker() -> Callable[[Callable[[], object]], None]:
    """A function that runs a callback in this event loop, soon, from any thread."""
    native: Any = anyio.lowlevel.current_token().native_token
    wake: Callable[[Callable[[], object]], None] = (
        getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
    )
    return wake
