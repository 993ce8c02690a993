"""Looking round: what others have written since, at the price of few lists.

A worker has to learn of two things that no bell announces: of hints of timers, to wake runs that
others have parked, and of holders, to notice their deaths. `timers/` and `workers/` follow upon
each other among the names of a store, so one list shows both. Holders also show in a list of the
queues, by the markers that name them. So one of the two lists is made once in ttl + margin, in
turns: then a lease is known before it can have run out, whenever it was made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import anyio

from durable.protocol import names
from durable.protocol.leases import Terms
from durable.runtime.neighbours import Neighbours
from durable.runtime.promoter import Promoter
from durable.store import Pace, Store, Stored, Within

HINTS_MAX = 1000  # a page of a bucket's list: beside as many the leases are listed alone

_BOTH = Within(names.TIMERS, names.WORKERS.replace("/", "0"))  # which follows upon them


class Periods(NamedTuple):
    """Seconds, at most, between two lists.

    Attributes:
        round: of any kind that shows holders.
        queues: of the whole queues, by an idle worker.
    """

    round: float
    queues: float

    @staticmethod
    def of(pace: Pace, terms: Terms) -> Periods:
        """The queues take their turn about once in a slow period."""
        each = min(pace.slow, terms.ttl + terms.margin)
        return Periods(each, each * max(1, round(pace.slow / each)))


class Rounds:
    """Lists hints and leases when it is time, and tells promoter and neighbours.

    Args:
        listed_at: when the whole queues were last listed, on the boot clock.
    """

    def __init__(
        self,
        store: Store,
        period: float,
        *,
        promoter: Promoter,
        neighbours: Neighbours,
        listed_at: Callable[[], float],
    ) -> None:
        self._store = store
        self._period = period
        self._promoter = promoter
        self._neighbours = neighbours
        self._listed_at = listed_at
        self._looked_at = -math.inf
        self._hints_at = -math.inf  # when hints are to be listed again, if they are many
        self._looking = anyio.Lock()

    async def look(self) -> None:
        """List what is due to be listed. Who asks meanwhile waits for it."""
        if self._store.system.boot() < self._due() and not self._looking.locked():
            return  # asked all the time by a worker that has nothing to do
        async with self._looking:
            now = self._store.system.boot()
            if now >= self._due():
                if now >= self._hints_at:
                    await self._list_both()
                else:
                    await self._list_leases()
                self._looked_at = now

    def _due(self) -> float:
        in_turn = max(self._looked_at, self._listed_at()) + self._period
        return min(in_turn, self._looked_at + self._store.pace.slow)

    async def _list_both(self) -> None:
        leases: list[Stored] = []
        hints, is_next_known = 0, False
        async for stored in self._store.list("", _BOTH):
            if stored.name.startswith(names.WORKERS):
                leases.append(stored)
            elif stored.name.startswith(names.TIMERS):
                hints += 1
                is_next_known = is_next_known or self._promoter.learn(stored.name)
                if hints == HINTS_MAX and is_next_known:
                    pause = self._store.pace.slow - self._period
                    self._hints_at = self._store.system.boot() + pause
                    await self._list_leases()
                    return
        await self._neighbours.learn(leases)

    async def _list_leases(self) -> None:
        await self._neighbours.learn([stored async for stored in self._store.list(names.WORKERS)])
