"""The slots of a limited queue: found, made, handed on, given up. See durable.protocol.queues."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from durable import catalog
from durable.catalog import Contention
from durable.protocol import moments, names, queues, records
from durable.protocol.queues import Rate
from durable.protocol.records import Pending, QueueRecord, Slot, Start, Starts
from durable.runtime import markers, reading
from durable.runtime.facts import read_start
from durable.store import Store, Stored, Written

_slot = msgspec.json.Decoder(Slot)
_pending = msgspec.json.Decoder(Pending)
_starts = msgspec.json.Decoder(Starts)

FIRST_PENDING = 50  # looked at in one go
_STRANGER = Slot("", "", "", 0.0, "")  # what is no slot keeps its place occupied


class HeldSlot(msgspec.Struct, frozen=True):
    """A slot that names the run we carry."""

    index: int
    generation: int
    writers: str


@dataclass
class Listed:
    """The slots of a queue as listed."""

    stored: dict[int, Stored] = field(default_factory=dict)
    slots: dict[int, Slot] = field(default_factory=dict)

    def held(self, run: str, instance: str) -> HeldSlot | None:
        """The slot that this instance relies on."""
        index = queues.own(self.slots, run, instance)
        return None if index is None else _held(index, self.stored[index])


def _held(index: int, stored: Stored) -> HeldSlot:
    return HeldSlot(index, stored.generation, catalog.writers_of(stored))


class Slots:
    """The slots and the waiting line of one queue.

    Args:
        settings: its limits.
        paused: nobody gets a slot.
    """

    def __init__(self, store: Store, settings: QueueRecord, *, paused: bool = False) -> None:
        self.settings = settings
        self.paused = paused
        self._store = store
        self._queue = settings.name

    # -- looking ----------------------------------------------------------------------------------

    async def all(self) -> Listed:
        """All slots; a stranger's object in the place of one keeps it occupied."""
        found = Listed()
        async for stored in self._store.list(names.slots(self._queue)):
            index = names.slot_index(stored.name)
            if index is None:
                continue
            slot = await reading.record(self._store, stored, _slot)
            found.stored[index] = stored
            found.slots[index] = slot or _STRANGER
        return found

    async def at(self, index: int, run: str, instance: str) -> HeldSlot | None:
        """The slot of that number, if it names this instance."""
        stored = await self._store.read(names.slot(self._queue, index))
        slot = None if stored is None else reading.decoded(stored, _slot)
        if stored is None or slot is None or (slot.run, slot.instance) != (run, instance):
            return None
        return _held(index, stored)

    async def waiting(self, limit: int = FIRST_PENDING) -> list[tuple[Stored, Pending]]:
        """The first of those that wait, in the order of their turns."""
        found: list[tuple[Stored, Pending]] = []
        async for stored in self._store.list(names.pendings(self._queue)):
            pending = await reading.record(self._store, stored, _pending)
            if pending is not None:
                found.append((stored, pending))
            if len(found) == limit:
                break
        return found

    # -- getting one ------------------------------------------------------------------------------

    async def admit(self, run: str, start: Start, *, hint: int, clean: bool) -> HeldSlot | None:
        """The slot under which the run may go on; None: it stands in line.

        Args:
            hint: the number of the slot that it was woken for; below 0: none is known.
            clean: nothing that an earlier owner of the run has sent is under way.
        """
        if hint >= 0 and (held := await self.at(hint, run, start.instance)) is not None:
            if clean or (held := await self._keep(held, run, start)) is not None:
                return held
        listed = await self.all()
        while (held := listed.held(run, start.instance)) is not None:
            if clean or (held := await self._keep(held, run, start)) is not None:
                return held
            listed = await self.all()
        if not self.paused and queues.free(listed.slots, self.settings):
            if not await self._is_anybody_ahead(run) and await self.reserve(1):
                if (held := await self.make(run, start, listed)) is not None:
                    return held
        await self._stand(run, start)
        # A slot that became free meanwhile has not seen us: this look is for it.
        await self.dispatch()
        return (await self.all()).held(run, start.instance)

    async def _keep(self, held: HeldSlot, run: str, start: Start) -> HeldSlot | None:
        """Write the slot anew; None: it is ours no more.

        An earlier owner may have died while it gave the slot up. What it sent names the
        generation that it saw, and must not land once the run goes on here.
        """
        slot = self._slot_of(run, start)
        name, body = names.slot(self._queue, held.index), records.encode(slot)
        written = await self._store.replace(
            name, held.generation, body, nonce=slot.nonce, earlier=held.writers
        )
        if not isinstance(written, Written):
            return None
        writers = catalog.with_writer(slot.nonce, held.writers)
        return HeldSlot(held.index, written.generation, writers)

    async def _stand(self, run: str, start: Start) -> None:
        """Be in line, by an object that nobody has seen yet.

        One that is there may be of an earlier turn: who gave the run its slot then is about to
        delete it, by the generation that it has seen.
        """
        name = pending_name(run, start)
        contention = Contention(self._store, name)
        stored = None
        while True:
            pending = pending_of(run, start, nonce=self._store.system.token())
            written = await catalog.put(
                self._store, name, stored, records.encode(pending), nonce=pending.nonce
            )
            if isinstance(written, Written):
                return
            if stored is not None:
                await contention.lost()
            stored = written.current

    async def _is_anybody_ahead(self, run: str) -> bool:
        return any(pending.run != run for _, pending in await self.waiting(1))

    async def make(self, run: str, start: Start, listed: Listed) -> HeldSlot | None:
        """Make a free slot this run's; None: there is none.

        `listed` is brought up to date with what is found.
        """
        for index in queues.free(listed.slots, self.settings):
            slot = self._slot_of(run, start)
            name, body = names.slot(self._queue, index), records.encode(slot)
            answer = await self._store.create(name, body, nonce=slot.nonce)
            if isinstance(answer, Written):
                at, meta = answer.updated, {"nonce": slot.nonce}
                listed.slots[index] = slot
                listed.stored[index] = Stored(name, answer.generation, at, at, meta, body)
                held = HeldSlot(index, answer.generation, slot.nonce)
                return await self.looked_again(run, start.instance, held)
            if answer.current is not None:
                listed.stored[index] = answer.current
                listed.slots[index] = reading.decoded(answer.current, _slot) or _STRANGER
        return None

    async def looked_again(self, run: str, instance: str, made: HeldSlot) -> HeldSlot | None:
        """Two may have made one for the same run: the lower counts. None: the run is over."""
        listed = await self.all()
        lowest = listed.held(run, instance)
        over = await is_over_unless_new(self._store, run, instance)
        if over or (lowest is not None and lowest.index < made.index):
            await self._store.delete(names.slot(self._queue, made.index), made.generation)
            return None if over else lowest
        return made

    def _slot_of(self, run: str, start: Start) -> Slot:
        return Slot(
            run, start.instance, start.workflow, self._store.now(), self._store.system.token()
        )

    # -- giving it up -----------------------------------------------------------------------------

    async def give_up(self, held: HeldSlot, *, by: str) -> None:
        """Hand the slot to who is next, by one write; with nobody there it becomes free.

        Args:
            by: the run that held it.
        """
        if not self.paused and held.index < queues.count(self.settings):
            for stored, pending in await self.waiting():
                start = await self._start_of(stored, pending)
                if start is None or pending.run == by:
                    continue
                if not await self.reserve(1):
                    break
                await self._hand_on(held, stored, pending, start)
                return
        await self._store.delete(names.slot(self._queue, held.index), held.generation)
        # Who began to wait since has seen the slot taken: this look is for it.
        await self.dispatch()

    async def _hand_on(
        self, held: HeldSlot, stored: Stored, pending: Pending, start: Start
    ) -> None:
        slot = self._slot_of(pending.run, start)
        written = await self._store.replace(
            names.slot(self._queue, held.index), held.generation, records.encode(slot),
            nonce=slot.nonce, earlier=held.writers,
        )  # fmt: skip
        if isinstance(written, Written):
            made = HeldSlot(held.index, written.generation, slot.nonce)
            lowest = await self.looked_again(pending.run, start.instance, made)
            if lowest is not None:
                await self._wake(stored, pending, start, lowest)
            if lowest is None or lowest.index != made.index:
                await self.dispatch()  # two gave theirs to the same run: this one is for the next

    # -- giving them out --------------------------------------------------------------------------

    async def dispatch(self, *, tidy: bool = False) -> int:
        """Give free slots to those that wait, in the order of their turns; how many wait still.

        Args:
            tidy: look after slots whose runs may not need them, too.
        """
        waiting = await self.waiting()
        if (not waiting or self.paused) and not tidy:
            return len(waiting)
        listed = await self.all()
        if tidy or not queues.free(listed.slots, self.settings):
            await self._tidy(listed, {pending.run for _, pending in waiting})
        free = len(queues.free(listed.slots, self.settings))
        left = 0 if self.paused else await self.reserve(min(free, len(waiting)))
        served = 0
        for stored, pending in waiting:
            start = await self._start_of(stored, pending)
            if start is None:
                served += 1
                continue
            held = listed.held(pending.run, start.instance)
            if held is None and left > 0:
                held = await self.make(pending.run, start, listed)
                left -= 1
            if held is not None:
                await self._wake(stored, pending, start, held)
                served += 1
        return len(waiting) - served

    async def _wake(self, stored: Stored, pending: Pending, start: Start, held: HeldSlot) -> None:
        store = self._store
        await markers.wake(store, pending.run, start, nonce=store.system.token, slot=held.index)
        await store.delete(stored.name, stored.generation)

    async def _start_of(self, stored: Stored, pending: Pending) -> Start | None:
        """The `start` of a run that waits; None: it waits no more, it is over.

        Only `start` says which instance waits: the hint may be of whoever asked again for a run
        whose first starter was not told that it had been started.
        """
        start = await read_start(self._store, pending.run)
        start = pending.request if start is None else start
        if start is not None and not start.tombstone and start.queue == self._queue:
            if await self._store.read(names.result(pending.run, start.instance)) is None:
                return start
        await self._store.delete(stored.name, stored.generation)
        return None

    async def _tidy(self, listed: Listed, waiting: set[str]) -> None:
        """Free the slots of what is over; ask the holders of the others, if nobody holds them."""
        for index, slot in list(listed.slots.items()):
            stored = listed.stored.get(index)
            if stored is None:
                continue
            if not slot.run or await is_over_unless_new(self._store, slot.run, slot.instance):
                if slot.run and await self._store.delete(stored.name, stored.generation):
                    del listed.slots[index], listed.stored[index]
                continue
            if self.settings.keep_slot or slot.run in waiting:
                continue
            start = await read_start(self._store, slot.run)
            if start is not None and await markers.read(self._store, start.queue, slot.run) is None:
                # Parked, although it should have given the slot up: its holder will.
                await markers.wake(
                    self._store, slot.run, start, nonce=self._store.system.token, slot=index
                )

    # -- rate -------------------------------------------------------------------------------------

    async def reserve(self, wanted: int) -> int:
        """Count so many more starts, as far as the rate allows them now; how many that is."""
        if self.settings.rate is None or not wanted:
            return wanted
        rate = Rate(int(self.settings.rate[0]), self.settings.rate[1])
        name = names.queue_rate(self._queue)
        while True:
            stored = await self._store.read(name)
            before = None if stored is None else reading.decoded(stored, _starts)
            times, now = [] if before is None else before.times, self._store.now()
            more = min(wanted, queues.may_start(times, rate, now))
            if not more:
                return 0
            after = Starts(self._store.system.token(), queues.started(times, rate, now, more))
            body = records.encode(after)
            answer = await catalog.put(self._store, name, stored, body, nonce=after.nonce)
            if isinstance(answer, Written):
                return more


async def is_over_unless_new(store: Store, run: str, instance: str) -> bool:
    """As `is_over`, but a run whose `start` is still on its way is not over."""
    if await store.read(names.result(run, instance)) is not None:
        return True
    start = await read_start(store, run)
    return start is not None and (start.tombstone or start.instance != instance)


def pending_name(run: str, start: Start) -> str:
    """The name of its place in line: the same whoever makes it."""
    return names.pending(start.queue, start.priority, moments.stamp(start.created), run)


def pending_of(run: str, start: Start, *, nonce: str) -> Pending:
    """The place in line of a run that is just being started."""
    return Pending(run, start.instance, start.workflow, nonce, start.created, request=start)


def decode_pending(stored: Stored) -> Pending | None:
    """The record in a place in line that came with its body; None if it is none."""
    return reading.decoded(stored, _pending)
