"""Threads that run user code, counted for those that must not run ahead of them.

An event loop on virtual time may jump to its next timer when nothing is left to do. A thread that
computes is something to do, one that waits for the event loop is not, and the loop cannot tell.
Where a watch is set, every thread of a run has a ticket here. So has, at the watch of its run,
each thread that runs a workflow's code: what it does next may end waits whose time is over.
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
        self._idle: anyio.Event | None = None  # while somebody waits

    @property
    def busy(self) -> bool:
        """Whether a thread runs user code that the event loop will hear from."""
        return bool(self._working)

    async def idle(self) -> None:
        """Returns once no thread works."""
        while self._working:
            self._idle = self._idle or anyio.Event()
            await self._idle.wait()

    def begins(self, ticket: Ticket) -> None:
        """It works."""
        self._working.add(ticket)

    def rests(self, ticket: Ticket) -> None:
        """It does not, for now or for good."""
        self._working.discard(ticket)
        if self._idle is not None and not self._working:
            self._idle.set()
            self._idle = None


class Ticket:
    """One thread, from its start until nobody waits for it any more."""

    def __init__(self, *watches: ThreadWatch) -> None:
        self._watches = watches
        self._over = False
        self.works()

    def works(self) -> None:
        """It runs user code. A thread that was left behind does so for nobody."""
        if not self._over:
            for watch in self._watches:
                watch.begins(self)

    def waits(self) -> None:
        """It waits for the event loop."""
        for watch in self._watches:
            watch.rests(self)

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


async def in_thread(
    fn: Callable[..., T],
    *args: object,
    limiter: anyio.CapacityLimiter,
    of: ThreadWatch | None = None,
) -> T:
    """Run user code in a thread, which is left behind when this is cancelled.

    Args:
        of: the watch of the run, if it is its workflow's code.
    """
    watches = [watching for watching in (watch.get(), of) if watching is not None]
    if not watches:
        return await anyio.to_thread.run_sync(fn, *args, limiter=limiter, abandon_on_cancel=True)
    ticket = Ticket(*watches)
    token = _mine.set(ticket)  # the thread runs in a copy of this context
    try:
        return await anyio.to_thread.run_sync(fn, *args, limiter=limiter, abandon_on_cancel=True)
    finally:
        _mine.reset(token)
        ticket.ends()
