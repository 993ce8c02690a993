"""Finding runs that need a worker: by the bell, by a list of the queue, after a death.

An idle worker looks at its queue's bell about once a second (a get of an absent object, which a
bucket does not bill) and lists the queue when it rings. A lost ring costs at most one slow
period. A bell is deleted *before* the list, so that a ring during the list is not lost.

A worker that has work and room for more lists often. Then its peers do, too, and each lists a
part of the queue; whatever the parts leave out, the next list of the whole queue finds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from durable.protocol import names
from durable.runtime import flags, markers
from durable.runtime.dispatcher import Dispatcher
from durable.runtime.holdings import Holdings
from durable.runtime.identity import Options
from durable.runtime.lines import Lines
from durable.runtime.peers import Peers
from durable.runtime.sweeper import Sweeper
from durable.store import EVERYTHING, Store, Stored, Within

ATTENTION_SLOWER = 5  # times the slow period; hints matter when code changes, at worker start
BELL_KEPT = 2.0  # seconds a bell stays in a bucket, which allows one mutation a second per name


class _Found(NamedTuple):
    """What a list showed: markers that may be taken, those of others by holder, all runs.

    `named`: all holders, also of runs that this worker cannot carry.
    """

    unowned: list[Stored]
    foreign: dict[str, list[Stored]]
    live: set[str]
    named: set[str]


class Finder:
    """Looks for work and hands it to the holdings.

    Args:
        period: seconds, at most, between two lists of the whole queues while there is no work.

    Attributes:
        named: the holders that markers named when all were last listed.
        listed_at: when the whole queues were last listed, on the boot clock.
        until_idle: list often while others carry runs, to notice when the last has ended.
        idle: whether the last list of all showed nothing that this worker could ever take.
    """

    def __init__(
        self,
        store: Store,
        sweeper: Sweeper,
        holdings: Holdings,
        peers: Peers,
        options: Options,
        *,
        dispatcher: Dispatcher,
        lines: Lines,
        period: float,
    ) -> None:
        self.named: set[str] = set()
        self.listed_at = -math.inf
        self.idle = False
        self.until_idle = False
        self._store = store
        self._sweeper = sweeper
        self._holdings = holdings
        self._peers = peers
        self._options = options
        self._dispatcher = dispatcher
        self._lines = lines
        self._period = period
        self._others_work = False  # others hold runs that this worker could carry
        self._lined_up = False  # runs wait for a slot
        self._is_new = True  # it has not looked yet
        self._heard: dict[str, int] = {}  # rings that were answered by dispatching alone
        self._live: set[str] = set()  # runs that had a marker when all were last listed
        self._list_at = 0.0
        self._whole_at = 0.0
        self._attention_at = 0.0
        self._again_at = math.inf  # for what the store would not do

    def hurry(self) -> None:
        """List the whole queues at the next look."""
        self._list_at = self._whole_at = 0.0

    def look_again(self) -> None:
        """List the whole queues before long: the store would not have a run that they show."""
        self._again_at = min(self._again_at, self._after(busy=True))

    async def look(self) -> None:
        """One poll: the bells, and a list where one is due."""
        system, pace = self._store.system, self._store.pace
        rung = self._holdings.room > 0 and await self._queue_bells()
        if not self._holdings.room:
            await self._dispatch_for_others()
        again = system.boot() >= self._again_at
        look = rung or again or self._dispatcher.is_in_doubt
        if look or system.boot() >= self._list_at:
            await self._list_now(whole=look or system.boot() >= self._whole_at, rung=rung)
        if system.boot() >= self._attention_at:
            woken, later = await self._look_at_attention()
            if woken:  # take them before workers of the code that gave up do, or try again soon
                await self._list_now(whole=True)
            rest = pace.slow if later else ATTENTION_SLOWER * pace.slow
            self._attention_at = system.boot() + (pace.busy if woken else rest)

    async def _list_now(self, *, whole: bool, rung: bool = False) -> None:
        system, pace = self._store.system, self._store.pace
        planned, soon = system.boot() + pace.busy, False
        self._list_at = planned
        if whole or self.until_idle or not self._is_busy():
            self._whole_at = planned
            self._again_at = math.inf
            soon = await self._dispatch(rung=rung)
            await self._list(dict.fromkeys(self._options.queues, EVERYTHING))
            self.listed_at = planned - pace.busy
            if self._whole_at == planned:  # else: somebody was in a hurry meanwhile
                self._whole_at = self._after(busy=soon)
        else:
            await self._list(
                {queue: await self._peers.part(queue) for queue in self._options.queues}
            )
        if self._list_at == planned:
            waits = self.until_idle and self._others_work
            self._list_at = self._after(busy=soon or waits or self._is_busy())

    def _after(self, *, busy: bool) -> float:
        """When the next list is due, with jitter."""
        system = self._store.system
        if busy:
            return system.boot() + self._store.pace.busy * system.uniform(0.8, 1.2)
        return system.boot() + self._period * system.uniform(0.9, 1.0)

    async def _dispatch(self, *, rung: bool) -> bool:
        """Give slots to runs that wait for one, so that the list that follows shows them."""
        soon, self._lined_up = False, False
        rung, self._is_new = rung or self._is_new, False
        for queue in self._options.queues:
            soon |= await self._dispatcher.look(queue, rung=rung)
            if self.until_idle:
                self._lined_up |= await self._dispatcher.is_anybody_waiting(queue)
        return soon

    async def _dispatch_for_others(self) -> None:
        """Without room the bells are left to others, who leave the dispatching to this worker."""
        for queue in self._dispatcher.own:
            bell = await self._store.read(names.queue_bell(queue))
            if bell is not None and bell.generation != self._heard.get(queue):
                self._heard[queue] = bell.generation
                await self._dispatcher.look(queue, rung=True)

    def _is_busy(self) -> bool:
        """Whether there is work, and room for more of it."""
        work = self._holdings.left_over or not self._holdings.is_empty()
        return bool(work) and self._holdings.room > 0

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

    async def _list(self, parts: dict[str, Within]) -> None:
        found = await self._listed(parts)
        if set(parts.values()) == {EVERYTHING}:
            self.named, self._live = found.named, found.live
            self._others_work = bool(found.foreign)
            nothing = not found.unowned and not found.foreign
            self.idle = nothing and self._holdings.is_empty() and not self._lined_up
        of_the_dead = [
            stored
            for holder, held in found.foreign.items()
            if await self._sweeper.takeable(holder)
            for stored in held
        ]
        left = await self._holdings.take_all(found.unowned, of_the_dead)
        for queue in parts:
            folder = names.marker_folder(queue)
            if any(stored.name.startswith(folder) for stored in left):
                # Whoever has room next need not wait for its slow list.
                bell, token = names.queue_bell(queue), self._store.system.token()
                await markers.ring(self._store, bell, token)

    async def _listed(self, parts: dict[str, Within]) -> _Found:
        found = _Found([], {}, set(), set())
        for queue, part in parts.items():
            async for stored in self._store.list(names.marker_folder(queue), part):
                run, holder = names.marker_run(stored.name), stored.meta.get("holder", "")
                if run is None:
                    continue
                found.live.add(run)
                if holder:
                    found.named.add(holder)
                workflow = stored.meta.get("workflow", "")
                if not self._holdings.serves(workflow, stored.meta.get("pin", "")):
                    continue  # never take what cannot be run
                if not holder and self._lines.is_paused(queue, workflow):
                    continue
                if holder not in {"", self._holdings.identity.id}:
                    found.foreign.setdefault(holder, []).append(stored)
                elif stored.body is not None and markers.decode(stored) is None:
                    continue  # damaged: nobody can take it
                elif self._holdings.has(run):
                    if holder:
                        self._holdings.saw(run, stored)
                else:
                    # A marker that names us for a run that we do not run is taken afresh.
                    found.unowned.append(stored)
        return found

    async def _look_at_attention(self) -> tuple[int, bool]:
        woken, later = 0, False
        for queue in self._options.queues:
            here = await flags.wake_flagged(
                self._store, queue, version=self._options.version, serves=self._holdings.serves,
                live=self._live, token=self._store.system.token,
            )  # fmt: skip
            woken, later = woken + here[0], later or here[1]
        return woken, later
