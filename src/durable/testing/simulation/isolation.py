"""What must not leak in from the real machine: threads, and orders that memory decides."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio._backends._asyncio as backend
import anyio.lowlevel


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """For the time of one simulation; whatever runs in it runs on one event loop."""
    scope: Any = backend.CancelScope
    threads: Any = backend.AsyncIOBackend
    saved_hash, saved_threads = scope.__hash__, threads.__dict__["run_sync_in_worker_thread"]
    saved_hook = sys.unraisablehook
    logger = logging.getLogger("durable")
    saved_level, collects = logger.level, gc.isenabled()
    # Sets of scopes are otherwise in the order of their addresses.
    scope.__hash__ = lambda self: 0
    threads.run_sync_in_worker_thread = classmethod(_run_inline)
    sys.unraisablehook = lambda unraisable: None  # code that was killed in the middle
    logger.setLevel(logging.CRITICAL + 1)
    gc.disable()  # so that nothing of what was killed is closed in the middle either
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # coroutines that were never begun
            try:
                yield
            finally:
                gc.collect(0)  # what became garbage here, while nobody minds
    finally:
        if collects:
            gc.enable()
        scope.__hash__ = saved_hash
        threads.run_sync_in_worker_thread = saved_threads
        sys.unraisablehook = saved_hook
        logger.setLevel(saved_level)


async def _run_inline(
    _cls: object,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    abandon_on_cancel: bool = False,  # noqa: ARG001  # nothing is ever abandoned here
    limiter: anyio.CapacityLimiter | None = None,
) -> Any:
    """A sync body takes a turn of its own, and no time."""
    await anyio.lowlevel.checkpoint()
    if limiter is None:
        return func(*args)
    async with limiter:
        return func(*args)
