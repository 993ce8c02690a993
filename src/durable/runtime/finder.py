"""Finding runs that need a worker: by the bell, by a list of the queue, after a death.

An idle worker looks at its queue's bell about once a second (a get of an absent object, which a
bucket does not bill) and lists the queue when it rings. A lost ring costs at most one slow
period. A bell is deleted *before* the list, so that a ring during the list is not lost.
"""

from __future__ import annotations

from durable.protocol import names
from durable.runtime import flags, markers
from durable.runtime.holdings import Holdings
from durable.runtime.identity import Options
from durable.runtime.sweeper import Sweeper
from durable.store import Store, Stored

ATTENTION_SLOWER = 5  # times the slow period; hints matter when code changes, at worker start
BELL_KEPT = 2.0  # seconds a bell stays in a bucket, which allows one mutation a second per name


class Finder:
    """Looks for work and hands it to the holdings.

    Attributes:
        named: the foreign holders that markers named when they were last listed.
        until_idle: list often while others carry runs, to notice when the last has ended.
        idle: whether the last list showed nothing that this worker could ever take.
    """

    def __init__(
        self, store: Store, sweeper: Sweeper, holdings: Holdings, options: Options
    ) -> None:
        self.named: set[str] = set()
        self.idle = False
        self.until_idle = False
        self._store = store
        self._sweeper = sweeper
        self._holdings = holdings
        self._options = options
        self._live: set[str] = set()  # runs that had a marker when last listed
        self._list_at = 0.0
        self._attention_at = 0.0

    def hurry(self) -> None:
        """List the queues at the next look."""
        self._list_at = 0.0

    async def look(self) -> None:
        """One poll: the bells, and a list where one is due."""
        system, pace = self._store.system, self._store.pace
        rung = self._holdings.room > 0 and await self._queue_bells()
        if rung or system.boot() >= self._list_at:
            planned = self._list_at = system.boot() + pace.busy
            await self._list()
            if self._list_at == planned:  # else: somebody was in a hurry meanwhile
                self._list_at = system.boot() + self._period() * system.uniform(0.8, 1.2)
        if system.boot() >= self._attention_at:
            await self._look_at_attention()
            self._attention_at = system.boot() + ATTENTION_SLOWER * pace.slow

    def _period(self) -> float:
        """Seconds to the next list: short while there is work and room for more of it."""
        work = self._holdings.left_over or not self._holdings.is_empty()
        waits = self.until_idle and bool(self.named)
        soon = waits or (work and self._holdings.room > 0)
        return self._store.pace.busy if soon else self._store.pace.slow

    async def answer_own_bell(self) -> None:
        """Somebody touched a marker that this worker holds."""
        if self._holdings.runners:
            if await self._answer(names.worker_bell(self._holdings.identity.id)):
                await self._holdings.learn_touched()

    async def _queue_bells(self) -> bool:
        rung = False
        for queue in self._options.queues:
            rung |= await self._answer(names.queue_bell(queue))
        return rung

    async def _answer(self, bell: str) -> bool:
        stored = await self._store.read(bell)
        if stored is None:
            return False
        if self._store.now() - stored.updated >= min(BELL_KEPT, 2 * self._store.pace.bell):
            await self._store.delete(bell, stored.generation)
        return True

    async def _list(self) -> None:
        unowned: list[Stored] = []
        foreign: dict[str, list[Stored]] = {}
        live: set[str] = set()
        own_id = self._holdings.identity.id
        for queue in self._options.queues:
            async for stored in self._store.list(names.marker_folder(queue)):
                run, holder = names.marker_run(stored.name), stored.meta.get("holder", "")
                if run is None:
                    continue
                live.add(run)
                if not self._holdings.serves(stored.meta.get("workflow", "")):
                    continue  # never take what cannot be run
                if holder not in {"", own_id}:
                    foreign.setdefault(holder, []).append(stored)
                elif stored.body is not None and markers.decode(stored) is None:
                    continue  # damaged: nobody can take it
                elif self._holdings.has(run):
                    if holder:
                        self._holdings.saw(run, stored)
                else:
                    # A marker that names us for a run that we do not run is taken afresh.
                    unowned.append(stored)
        self.named = set(foreign)
        self.idle = not unowned and not foreign and self._holdings.is_empty()
        of_the_dead = [
            stored
            for holder, held in foreign.items()
            if await self._sweeper.takeable(holder)
            for stored in held
        ]
        self._live = live
        await self._holdings.take_all(unowned, of_the_dead)

    async def _look_at_attention(self) -> None:
        for queue in self._options.queues:
            await flags.wake_flagged(
                self._store, queue, version=self._options.version, serves=self._holdings.serves,
                live=self._live, token=self._store.system.token,
            )  # fmt: skip
