"""What must not leak in from the real machine: above all, orders that memory decides."""

from __future__ import annotations

import asyncio  # noqa: TID251  # the simulated event loop is one of asyncio's
import contextlib
import gc
import linecache
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import anyio._backends._asyncio as backend
import sniffio


class _TaskStates:
    """What anyio knows of each task, kept with the task: a weak dictionary costs a tenth of all."""

    def get(self, task: Any, default: object = None) -> Any:
        return getattr(task, "anyio_state", default)

    def __getitem__(self, task: Any) -> Any:
        try:
            return task.anyio_state
        except AttributeError:
            raise KeyError(task) from None

    def __setitem__(self, task: Any, state: object) -> None:
        task.anyio_state = state

    def __delitem__(self, task: Any) -> None:
        del task.anyio_state


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """For the time of one simulation; whatever runs in it runs on one event loop."""
    scope: Any = backend.CancelScope
    saved_hash, saved_hook, saved_check = scope.__hash__, sys.unraisablehook, linecache.checkcache
    states, logger = backend._task_states, logging.getLogger("durable")
    saved_level, collects = logger.level, gc.isenabled()
    # Sets of scopes are otherwise in the order of their addresses.
    scope.__hash__ = lambda self: 0
    backend._task_states = _TaskStates()  # type: ignore[assignment]  # all that anyio asks of it
    sys.unraisablehook = lambda unraisable: None  # code that was killed in the middle
    logger.setLevel(logging.CRITICAL + 1)
    sniffio.thread_local.name = "asyncio"  # anyio need not find out, each time
    linecache.checkcache = lambda filename=None: None  # no source changes meanwhile
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
        sniffio.thread_local.name = None
        linecache.checkcache = saved_check
        scope.__hash__ = saved_hash
        backend._task_states = states
        sys.unraisablehook = saved_hook
        logger.setLevel(saved_level)


@contextlib.contextmanager
def known(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Whoever asks in this thread which loop runs is told so at once.

    It is asked ten thousand times a simulation, and up to Python 3.11 costs a system call.
    """
    events: Any = asyncio.events
    running, running_if_any = events.get_running_loop, events._get_running_loop
    this = threading.get_ident()

    def get_running_loop() -> Any:
        return loop if threading.get_ident() == this else running()

    def get_running_loop_if_any() -> Any:
        return loop if threading.get_ident() == this else running_if_any()

    owner: Any = backend
    saved = owner.get_running_loop
    events.get_running_loop = owner.get_running_loop = get_running_loop
    events._get_running_loop = get_running_loop_if_any
    try:
        yield
    finally:
        events.get_running_loop, owner.get_running_loop = running, saved
        events._get_running_loop = running_if_any
