"""Waking parked runs whose time has come.

Hints are named by time, so a list of `timers/` is cut off at the first that is not due. A worker
lists them when one is due that it made itself or that the last list showed as the next; of those
that others have made since it learns by its rounds.
"""

from __future__ import annotations

import contextlib
import heapq

import anyio

from durable.protocol import moments, names
from durable.runtime import timers
from durable.runtime.branches import map_in
from durable.store import Store, Stored

AT_ONCE = 16  # runs woken side by side


class Promoter:
    """Looks for timer hints that are due."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dues: list[float] = []  # those known, a heap
        self._looking = anyio.Lock()

    def expect(self, due: float) -> None:
        """A run was parked here until then."""
        if due not in self._dues[:1]:
            heapq.heappush(self._dues, due)

    def learn(self, hint: str) -> bool:
        """There is this hint, among others that are told in the order of names.

        Returns:
            Whether it is not due yet: those behind it need not be told.
        """
        with contextlib.suppress(ValueError):  # `never`, or a stranger's object
            self.expect(moments.seconds(names.timer_due(hint)))
        return self._is_later(hint)

    async def look(self) -> int:
        """Wake what is due, if anything may be; the number of runs woken.

        Whoever asks while another look is under way waits for it.
        """
        if not self._is_time() and not self._looking.locked():
            return 0
        async with self._looking:
            return await self._look() if self._is_time() else 0

    def _is_time(self) -> bool:
        """Whether a hint may be due; asked all the time by a worker that has nothing to do."""
        return bool(self._dues) and self._dues[0] <= self._store.now()

    async def _look(self) -> int:
        now = self._store.now()
        while self._dues and self._dues[0] <= now:
            heapq.heappop(self._dues)
        return await self._promote()

    def _is_later(self, hint: str) -> bool:
        return names.timer_due(hint) > moments.stamp(self._store.now())

    async def _promote(self) -> int:
        due: list[Stored] = []
        async for stored in self._store.list(names.TIMERS):
            if self._is_later(stored.name):
                self.learn(stored.name)
                break
            due.append(stored)
        woken: list[str] = []

        async def wake(stored: Stored) -> None:
            promoted = await timers.promote(self._store, stored)
            if promoted.later is not None:
                self.expect(promoted.later)
            if promoted.woken:
                woken.append(stored.name)

        await map_in(None, wake, due, AT_ONCE)
        return len(woken)
