"""Which thread carries out what event loops ask of a SQLite connection."""

from __future__ import annotations

import threading
from itertools import chain, repeat

import anyio
import pytest

from durable.store.database import Connection
from durable.store.lanes import HERE_SECONDS, Batch, Lane

pytestmark = pytest.mark.anyio

QUICK, SLOW = HERE_SECONDS / 4, HERE_SECONDS * 100


class Disk:
    """Carries out batches that take so many seconds each, and notes in which thread."""

    def __init__(self, *takes: float, then: float) -> None:
        self.takes = chain(takes, repeat(then))
        self.now = 0.0
        self.here: list[bool] = []
        caller = threading.current_thread()

        def carry_out(_db: Connection, batch: Batch, _patience: float) -> bool:
            self.now += next(self.takes)
            self.here.append(threading.current_thread() is caller)
            for request in batch:
                request.answer = None
            return True

        self.lane = Lane("lane", self._connect, carry_out, lambda: self.now)

    def _connect(self) -> Connection:
        return Connection(":memory:", check_same_thread=False)

    async def ask(self, times: int) -> list[bool]:
        """Whether each of so many requests, one after the other, was done in this thread."""
        for _ in range(times):
            await self.lane.ask(lambda _db, _now: None, small=True)
        return self.here[-times:]


async def test_small_requests_of_a_fast_disk_are_done_where_they_are_asked() -> None:
    """The first ones tell how fast it is, and open the connection."""
    disk = Disk(then=QUICK)
    await disk.ask(20)

    assert all(await disk.ask(20))
    await disk.lane.aclose()


async def test_one_slow_answer_changes_nothing() -> None:
    """A disk is judged by what it does on average."""
    disk = Disk(*repeat(QUICK, 20), SLOW, then=QUICK)
    await disk.ask(20)

    assert all(await disk.ask(20))
    await disk.lane.aclose()


async def test_a_slow_disk_holds_no_event_loop() -> None:
    """A handful of answers tells."""
    disk = Disk(*repeat(QUICK, 20), then=SLOW)
    await disk.ask(24)

    assert not any(await disk.ask(20))
    await disk.lane.aclose()


async def test_a_disk_that_has_become_fast_is_trusted_again() -> None:
    """Answers to the thread count as well."""
    disk = Disk(*repeat(SLOW, 20), then=QUICK)
    await disk.ask(40)

    assert all(await disk.ask(20))
    await disk.lane.aclose()


async def test_requests_in_company_share_a_batch_in_the_thread() -> None:
    """However fast the disk is: one sync for all of them."""
    disk = Disk(then=QUICK)
    await disk.ask(20)
    alone = len(disk.here)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(disk.ask, 1)

    assert disk.here[alone:] == [False]
    await disk.lane.aclose()
