"""Looking after other workers, so that a dead one is noticed soon and cheaply.

Each worker watches the three before it in the circle of sorted ids, by one get when their lease
would have run out, and tries the lock files of its host once a second, which costs no store
call. What nobody watched, the slow list of the queue finds.
"""

from __future__ import annotations

from collections.abc import Callable

from durable.protocol import leases, names
from durable.protocol.records import Lease
from durable.runtime.sweeper import Sweeper, decode_lease
from durable.store import Store

WATCHED = 3


class Neighbours:
    """The leases of other workers, as last seen.

    Args:
        period: seconds between lists of the leases. One that is listed within a ttl of its
            creation is watched before it can run out.
        own_id: the id under which this worker works at present.
        named: the holders that markers named when they were last listed.
    """

    def __init__(
        self,
        store: Store,
        sweeper: Sweeper,
        *,
        period: float,
        own_id: Callable[[], str],
        named: Callable[[], set[str]],
    ) -> None:
        self._store = store
        self._sweeper = sweeper
        self._period = period
        self._own_id = own_id
        self._named = named
        self._leases: dict[str, tuple[float, Lease]] = {}  # when last renewed, and the terms
        self._list_at = 0.0

    async def look(self) -> bool:
        """Whether anybody was found dead, and fenced, just now."""
        boot = self._store.system.boot
        if boot() >= self._list_at:
            await self._list()
            self._list_at = boot() + self._period
        dead = await self._sweeper.judge_orphans()
        watched = self._watched()
        for worker, (updated, lease) in list(self._leases.items()):
            if worker in watched and await self._has_run_out(worker, updated, lease):
                del self._leases[worker]
                dead = True
        return dead

    async def _list(self) -> None:
        listed = [stored async for stored in self._store.list(names.WORKERS)]
        await self._sweeper.tidy(listed, self._named())
        found = [(stored, decode_lease(stored)) for stored in listed]
        self._leases = {
            names.last_part(stored.name): (stored.updated, lease)
            for stored, lease in found
            if lease is not None and lease.state == "alive"
        }

    async def _has_run_out(self, worker: str, updated: float, lease: Lease) -> bool:
        if not leases.expired(updated, self._store.now(), lease):
            return False
        current = await self._store.read(names.worker(worker))
        if current is None:
            return True
        self._leases[worker] = (current.updated, lease)
        return await self._sweeper.judge(current)

    def _watched(self) -> set[str]:
        """The three before us in the circle of sorted ids."""
        ids = sorted({*self._leases, self._own_id()})
        place = ids.index(self._own_id())
        before = {ids[(place - i) % len(ids)] for i in range(1, WATCHED + 1)}
        return before - {self._own_id()}
