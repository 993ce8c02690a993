"""Threads that run user code, counted for a clock that must not run ahead of them.

An event loop on virtual time may jump to its next timer when nothing is left to do. A thread that
computes is something to do, one that waits for the event loop is not, and the loop cannot tell.
Where a watch is set, every thread of a run has a ticket here. Without one this costs a look.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


class ThreadWatch:
    """The threads at work. Belongs to one event loop; everything happens in it."""

    def __init__(self) -> None:
        self._working: set[Ticket] = set()

    @property
    def busy(self) -> bool:
        """Whether a thread runs user code that the event loop will hear from."""
        return bool(self._working)


class Ticket:
    """One thread, from its start until nobody waits for it any more."""

    def __init__(self, watch: ThreadWatch) -> None:
        self._all = watch._working
        self._over = False
        self.works()

    def works(self) -> None:
        """It runs user code. A thread that was left behind does so for nobody."""
        if not self._over:
            self._all.add(self)

    def waits(self) -> None:
        """It waits for the event loop."""
        self._all.discard(self)

    def ends(self) -> None:
        """It has ended, or was left behind."""
        self._over = True
        self.waits()


watch: ContextVar[ThreadWatch | None] = ContextVar("durable.threadwatch", default=None)
_mine: ContextVar[Ticket | None] = ContextVar("durable.ticket", default=None)


def mine() -> Ticket | None:
    """The ticket of the calling thread; None where nobody watches."""
    return _mine.get()


@contextlib.contextmanager
def at_work() -> Iterator[None]:
    """Around a wait for something outside the event loop that works as a thread does."""
    watching = watch.get()
    if watching is None:
        yield
        return
    ticket = Ticket(watching)
    try:
        yield
    finally:
        ticket.ends()


async def in_thread(fn: Callable[..., T], *args: object, limiter: anyio.CapacityLimiter) -> T:
    """Run user code in a thread, which is left behind when this is cancelled."""
    watching = watch.get()
    if watching is None:
        return await anyio.to_thread.run_sync(fn, *args, limiter=limiter, abandon_on_cancel=True)
    ticket = Ticket(watching)
    token = _mine.set(ticket)  # the thread runs in a copy of this context
    try:
        return await anyio.to_thread.run_sync(fn, *args, limiter=limiter, abandon_on_cancel=True)
    finally:
        _mine.reset(token)
        ticket.ends()
