"""Looking after other workers, so that a dead one is noticed soon and cheaply.

Each worker watches three holders before it in the circle of sorted ids, by one get when their
lease would have run out, and tries the lock files of its host once a second, which costs no store
call. It knows holders by a list of the leases, and by the markers in its queues, which make it
read a lease that no list has shown. What nobody watched, the slow list of the queue finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from durable.protocol import leases, names
from durable.protocol.records import Lease
from durable.runtime.sweeper import Sweeper, decode_lease
from durable.store import Store, Stored

WATCHED = 3


class Neighbours:
    """The leases of other workers, as last seen.

    Args:
        own_id: the id under which this worker works at present.
        named: the holders that markers named when they were last listed.
    """

    def __init__(
        self,
        store: Store,
        sweeper: Sweeper,
        *,
        own_id: Callable[[], str],
        named: Callable[[], set[str]],
    ) -> None:
        self._store = store
        self._sweeper = sweeper
        self._own_id = own_id
        self._named = named
        self._leases: dict[str, tuple[float, Lease]] = {}  # when last renewed, and the terms
        self._over: set[str] = set()  # named, though their lease is gone or dead

    async def learn(self, listed: list[Stored]) -> None:
        """These are all leases; what others left behind long ago is tidied up."""
        await self._sweeper.tidy(listed, self._named())
        found = [(stored, decode_lease(stored)) for stored in listed]
        self._leases = {
            names.last_part(stored.name): (stored.updated, lease)
            for stored, lease in found
            if lease is not None and lease.state == "alive"
        }

    async def look(self) -> bool:
        """Whether anybody was found dead, and fenced, just now."""
        dead = await self._sweeper.judge_orphans()
        for worker in sorted(self._watched()):
            dead |= await self._has_run_out(worker)
        return dead

    async def _has_run_out(self, worker: str) -> bool:
        seen = self._leases.get(worker)
        if seen is not None and not leases.expired(seen[0], self._store.now(), seen[1]):
            return False
        current = await self._store.read(names.worker(worker))
        lease = None if current is None else decode_lease(current)
        if current is not None and lease is not None:
            self._leases[worker] = (current.updated, lease)
            if not await self._sweeper.judge(current):
                return False
        self._over.add(worker)
        # Named by a marker and gone at first sight, it has let go of that marker meanwhile.
        return self._leases.pop(worker, None) is not None

    def _watched(self) -> set[str]:
        """Three of all, and three of those whose runs this worker may take."""
        named = self._named() - {self._own_id()}
        self._over &= named
        return self._before_us({*self._leases}) | self._before_us(named - self._over)

    def _before_us(self, others: Iterable[str]) -> set[str]:
        """The three before us in the circle of sorted ids."""
        own = self._own_id()
        ids = sorted({*others, own})
        place = ids.index(own)
        return {ids[place - i] for i in range(1, min(WATCHED, len(ids) - 1) + 1)}
