"""Turns of the event loop, and which task or thread is running.

The only module that knows that asyncio and trio differ here. Everything else is anyio.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Generator
from typing import Any

import anyio
import anyio.lowlevel

from durable.system import thread_id


@types.coroutine
def _asyncio_turn() -> Generator[None, None, None]:
    # What asyncio's own sleep(0) does; 6 times cheaper than a cancel-shielded anyio checkpoint.
    yield


async def turn() -> None:
    """Let every other runnable task run once."""
    if _is_trio():
        await anyio.lowlevel.checkpoint()
    else:
        await _asyncio_turn()


def _is_trio() -> bool:
    if "trio" not in sys.modules:
        return False
    lowlevel: Any = sys.modules["trio"].lowlevel
    return bool(lowlevel.in_trio_run())


def strand() -> int:
    """The identity of the running task, or of the thread where no event loop runs.

    A scope belongs to one strand; a call is legal in the strand that owns the scope.
    """
    try:
        return anyio.get_current_task().id
    except anyio.NoEventLoopError:
        return -thread_id()


def cancel_requests() -> int:
    """How many native cancellations of the running asyncio task are not taken back yet."""
    if _is_trio():
        return 0
    task: Any = sys.modules["asyncio"].current_task()
    return int(task.cancelling()) if task is not None else 0


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


def waker() -> Callable[[Callable[[], object]], None]:
    """A function that runs a callback in this event loop, soon, from any thread."""
    native: Any = anyio.lowlevel.current_token().native_token
    wake: Callable[[Callable[[], object]], None] = getattr(
        native, "call_soon_threadsafe", None
    ) or native.run_sync_soon
    return wake
