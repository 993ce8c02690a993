"""A thread that has one SQLite connection and carries out what event loops ask of it.

Requests gather in a queue while the thread is busy; it then takes all of them as one batch, so
that for a writer fifty concurrent writes share one sync. An answered batch wakes each event loop
once, however many of its tasks were waiting. A caller that is cancelled leaves its request in
the queue, where it is carried out whole or, if the process ends first, not at all.

Handing a request to a thread and back costs more than a small write itself. So a request that is
alone is carried out in the caller's thread, as long as the disk answers so fast (`HERE_SECONDS`)
that the event loop does not notice. On a slow disk, while another process holds the lock, and as
soon as a request has company, requests go to the thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

import anyio
import anyio.lowlevel

from durable.errors import StoreRefused
from durable.store.database import BUSY_SECONDS, Connection

HERE_SECONDS = 0.001  # on average; so long an event loop is held by one request that is alone
_RECENT = 8  # answers that tell how fast the disk is
_SLOW = 4 * HERE_SECONDS  # however long an answer took: a single slow one changes nothing
BATCH_MAX = 512  # requests of one batch: bounds how long the first of them waits for the last

T = TypeVar("T")
Work = Callable[[Connection, float], T]  # the float is the store's present time


class Request(Generic[T]):
    """Work for the thread, and the place where its answer or its error arrives."""

    __slots__ = ("answer", "done", "error", "loop", "work")

    answer: T
    done: anyio.Event
    loop: Any  # asyncio and trio name the same method differently, and anyio has no word for it

    def __init__(self, work: Work[T]) -> None:
        self.work = work
        self.error: Exception | None = None

    def wait_here(self) -> None:
        """Make it a request that another thread answers into this event loop."""
        token = anyio.lowlevel.current_token()
        self.loop = getattr(token, "native_token", token)  # older anyio gives the loop itself
        self.done = anyio.Event()


Batch = list[Request[object]]


class Lane:
    """The thread. It starts with the first request and ends with `aclose`.

    Args:
        name: of the thread.
        connect: opens the connection, in the thread; called again after it failed.
        carry_out: sets `answer` or `error` of every request of a batch. What it raises becomes
            the error of the whole batch. The float is for how many seconds it may wait for
            another process; if that is 0 and it would have to, it does nothing and returns False.
        clock: seconds, to tell a fast disk from a slow one.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        carry_out: Callable[[Connection, Batch, float], bool],
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._connect = connect
        self._carry_out = carry_out
        self._clock = clock
        self._queue: SimpleQueue[Request[object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._working = threading.Lock()  # held by the one thread that uses the connection
        self._db: Connection | None = None
        self._took = 2 * HERE_SECONDS  # on average of the last batches
        self._gathering: set[object] = set()  # who may still be carried out where it is
        self._thread: threading.Thread | None = None
        self._pid = 0  # of the process that started the thread
        self._closed = False
        self._last: Request[object] | None = None  # after it the thread ends

    async def ask(self, work: Work[T], *, small: bool = False) -> T:
        """Have `work` done; its answer, or raise what it raised.

        `small`: if it is alone, it may be done in this thread.
        """
        if small and self._took < HERE_SECONDS:
            request = await self._here(work)
            if request is not None:
                return _answer(request)
        request = Request(work)
        request.wait_here()
        self._put(cast("Request[object]", request))
        await request.done.wait()
        return _answer(request)

    async def _here(self, work: Work[T]) -> Request[T] | None:
        """Do it in this thread if nobody else is asking and nothing keeps us waiting."""
        self._gathering.add(work)
        try:
            # Whoever is about to ask in this turn of the event loop does so now.
            await anyio.lowlevel.checkpoint()
            alone = len(self._gathering) == 1 and self._queue.empty()
        finally:
            self._gathering.discard(work)
        if not alone or self._pid != os.getpid() or not self._working.acquire(blocking=False):
            return None
        try:
            if self._db is None or self._closed:
                return None
            request = Request(work)
            done = self._timed(self._db, [cast("Request[object]", request)], 0.0)
            return request if done else None
        finally:
            self._working.release()

    async def aclose(self) -> None:
        """Carry out what was asked before, then end the thread and close the connection."""
        with self._lock:
            first, self._closed = not self._closed, True
        if self._thread is None or self._pid != os.getpid():
            return  # nothing was asked here; in a forked child the thread is the parent's
        with anyio.CancelScope(shield=True):
            if first:
                self._last = Request(lambda _db, _now: None)
                self._last.wait_here()
                self._queue.put(self._last)
                await self._last.done.wait()
            self._thread.join()

    def _put(self, request: Request[object]) -> None:
        with self._lock:  # so that nothing is put behind the last request
            if self._closed:
                raise StoreRefused(f"the store is closed ({self._name})", hint="Open it again.")
            if self._pid != os.getpid():
                self._start()
            self._queue.put(request)

    def _start(self) -> None:
        if self._thread is not None:
            raise StoreRefused(
                f"the store was in use when this process was forked ({self._name}), and SQLite "
                "cannot be used across a fork",
                hint="Start processes with the 'spawn' method, or use the store only after the "
                "fork.",
            )
        self._thread = threading.Thread(target=self._main, name=self._name, daemon=True)
        self._thread.start()
        self._pid = os.getpid()

    def _main(self) -> None:
        while True:
            batch = self._next_batch()
            with self._working:
                try:
                    if self._db is None:
                        self._db = self._connect()
                    self._timed(self._db, batch, BUSY_SECONDS)
                except Exception as e:  # noqa: BLE001  # the caller is told, whatever it is
                    fail(batch, e)
                ends = self._last is not None and self._last in batch
                if ends and self._db is not None:
                    self._db.close()
                    self._db = None
            _wake(batch)
            if ends:
                return
            del batch  # or it stays alive until the next one comes

    def _timed(self, db: Connection, batch: Batch, patience: float) -> bool:
        began = self._clock()
        done = self._carry_out(db, batch, patience)
        if done:
            took = min(self._clock() - began, _SLOW)
            self._took += (took - self._took) / _RECENT
        return done

    def _next_batch(self) -> Batch:
        batch = [self._queue.get()]
        with suppress(Empty):
            while len(batch) < BATCH_MAX:
                batch.append(self._queue.get_nowait())
        return batch


def fail(batch: Batch, error: Exception) -> None:
    """Make `error` the answer of every request of the batch."""
    for request in batch:
        request.error = error


def _answer(request: Request[T]) -> T:
    if request.error is not None:
        raise request.error
    return request.answer


def _wake(batch: Batch) -> None:
    """Tell the waiting tasks, with one call into each event loop."""
    by_loop: dict[Any, list[anyio.Event]] = {}
    for request in batch:
        by_loop.setdefault(request.loop, []).append(request.done)
    for loop, events in by_loop.items():
        soon = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
        with suppress(RuntimeError):  # that loop has ended, and whoever waited in it
            soon(_set_all, events)


def _set_all(events: list[anyio.Event]) -> None:
    for event in events:
        event.set()
