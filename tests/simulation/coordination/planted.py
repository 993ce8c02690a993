"""Bugs planted in what runs share. As in tests.simulation.planted; importing it registers them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from durable import catalog
from durable.client import Client
from durable.documents import Document
from durable.effects import Effect
from durable.protocol import names, queues, records, singletons, ticks
from durable.runtime import admission, debouncing, finishing, firing, keyed, leaving, markers
from durable.runtime import singletons as locks
from durable.runtime.admission import Admission, Turned
from durable.runtime.closing import Parked
from durable.runtime.custody import Custody
from durable.runtime.scheduler import Scheduler
from durable.runtime.slots import HeldSlot, Slots
from durable.store import Store, Written
from tests.simulation.planted import bug, replaced

# -- locks ----------------------------------------------------------------------------------------


@bug
def the_lock_is_freed_before_the_result() -> Iterator[None]:
    true = finishing.record

    async def record(custody: Custody, facts: Any, result: Any) -> Any:
        request, store = facts.start.lock, custody.store
        if request is not None:
            stored = await store.read(names.lock(request.key))
            lock = None if stored is None else locks.decode(stored)
            if lock is not None and singletons.is_ours(lock, custody.run, facts.start.instance):
                free = msgspec.structs.replace(lock, run="", instance="", nonce=custody.token())
                name, body = names.lock(request.key), records.encode(free)
                await catalog.put(store, name, stored, body, nonce=free.nonce)
                await locks.wake_first(store, request.key)
        return await true(custody, facts, result)

    with replaced(finishing, "record", record):
        yield


@bug
def waiters_are_not_woken() -> Iterator[None]:
    async def end(store: Store, run: str, start: Any, wait: Any) -> Any:
        if start.lock is not None and wait is not None:
            return await locks.leave(store, run, start, wait)
        return wait

    with replaced(locks, "end", end):
        yield


@bug
def who_waits_does_not_look_again() -> Iterator[None]:
    """It stands in line after its last look at the lock."""
    true = Admission._wait

    async def wait(self: Admission, request: Any, held: Any) -> Any:
        found = admission.lock_wait(self.facts)
        if found is None:
            found = await locks.begin_wait(self.store, self.run, self.facts.start, request)
        if found.due is not None and found.due <= self.store.now():
            return await true(self, request, held)  # it gives up
        due = admission._until(held, found, request, self.store.now())
        await locks.stand(self.store, self.run, self.facts.start, found, due)
        return Parked(singletons.LOCK_PATH, due, "for the lock")

    with replaced(Admission, "_wait", wait):
        yield


@bug
def who_gives_up_at_its_first_look_stays_in_line() -> Iterator[None]:
    true = Admission._wait

    async def wait(self: Admission, request: Any, held: Any) -> Any:
        known = list(self.facts.waits)
        answer = await true(self, request, held)
        if isinstance(answer, Turned):
            self.facts.waits = known
        return answer

    with replaced(Admission, "_wait", wait):
        yield


@bug
def whoever_comes_takes_a_free_lock() -> Iterator[None]:
    true = locks.wake_first

    async def wake_first(store: Store, key: str, *, before: Any = None) -> Any:
        return None if before is not None else await true(store, key)

    with replaced(locks, "wake_first", wake_first):
        yield


@bug
def a_parked_holder_has_no_lock() -> Iterator[None]:
    """Whether the holder goes on is judged by the index of live runs."""
    true = locks.is_free

    async def is_free(store: Store, lock: Any) -> bool:
        return await true(store, lock) or await markers.read(store, "default", lock.run) is None

    with replaced(locks, "is_free", is_free):
        yield


# -- queues ---------------------------------------------------------------------------------------


@bug
def slots_are_deleted_whoever_has_them() -> Iterator[None]:
    async def give_up(self: Slots, held: HeldSlot, *, by: str) -> None:
        name = names.slot(self.settings.name, held.index)
        there = await self._store.read(name)
        if there is not None:
            await self._store.delete(name, there.generation)
        await self.dispatch()

    with replaced(Slots, "give_up", give_up):
        yield


@bug
def a_slot_is_relied_on_after_a_takeover() -> Iterator[None]:
    async def keep(self: Slots, held: HeldSlot, run: str, start: Any) -> HeldSlot:
        return held

    with replaced(Slots, "_keep", keep):
        yield


@bug
def a_run_goes_on_without_a_slot() -> Iterator[None]:
    """After a takeover its slot is not asked for: it had one."""
    true = Admission._ask_for_slot

    async def ask(self: Admission, admitted: Any) -> Any:
        return admitted if self._begun else await true(self, admitted)

    with replaced(Admission, "_ask_for_slot", ask):
        yield


@bug
def parked_runs_keep_their_slots() -> Iterator[None]:
    true = leaving.park

    async def park(custody: Custody, facts: Any, parked: Any) -> bool:
        place, custody.place = custody.place, None
        left = await true(custody, facts, parked)
        custody.place = place
        return left

    with replaced(leaving, "park", park):
        yield


@bug
def who_slept_gives_up_what_slot_it_lists() -> Iterator[None]:
    async def listed(self: Custody, slots: Slots, start: Any) -> HeldSlot | None:
        return (await slots.all()).held(self.run, start.instance)

    with replaced(Custody, "_listed_slot", listed):
        yield


@bug
def rates_are_looked_at_and_not_counted() -> Iterator[None]:
    async def reserve(self: Slots, wanted: int) -> int:
        return wanted

    with replaced(Slots, "reserve", reserve):
        yield


@bug
def priorities_are_forgotten_in_line() -> Iterator[None]:
    true = names.pending

    def pending(queue: str, priority: int, created: str, run: str) -> str:
        return true(queue, 0, created, run)

    with replaced(names, "pending", pending):
        yield


# -- starts that are held back --------------------------------------------------------------------


@bug
def starts_are_timed_by_their_machine() -> Iterator[None]:
    """By the wall clock, until the store has said what time it is."""

    async def timed(self: Client, request: Any) -> Any:
        await self.store.check()
        return request.at(self.store.system.wall())

    with replaced(Client, "_timed", timed):
        yield


@bug
def a_start_joins_a_run_that_has_begun() -> Iterator[None]:
    """Its request is put into a `start` that has been read for good."""

    async def is_closed(store: Store, run: str, start: Any) -> bool:
        return await store.read(names.result(run, start.instance)) is not None

    def collects(start: Any, key: Any) -> bool:
        return not start.tombstone and bool(key.is_of(start))

    with (
        replaced(debouncing, "_is_closed", is_closed),
        replaced(debouncing, "_collects", collects),
    ):
        yield


@bug
def a_busy_key_is_held_back_for_ever() -> Iterator[None]:
    def moved(there: Any, asked: Any) -> Any:
        return msgspec.structs.replace(there, due=max(there.due, asked.due))

    with replaced(queues, "moved", moved):
        yield


# -- schedules ------------------------------------------------------------------------------------


@bug
def tick_runs_are_named_by_when_they_start() -> Iterator[None]:
    async def start_tick(store: Store, record: Any, tick: float, version: str) -> bool:
        moved = msgspec.structs.replace(record, name=f"{record.name}-{store.now():.3f}")
        run = ticks.run_id(moved.name, tick)
        start = records.Start(
            workflow=record.workflow, input=record.input, nonce=store.system.token(),
            instance=store.system.token(), version=version, queue=record.queue,
            tags={"schedule": record.name}, created=store.now(), tick=tick,
        )  # fmt: skip
        return isinstance(await firing.starting.start(store, run, start), Written)

    with replaced(firing, "start_tick", start_tick):
        yield


@bug
def overlaps_are_judged_by_the_live_index() -> Iterator[None]:
    """A parked run is in no index of live runs, and not over."""

    async def is_busy(store: Store, record: Any) -> bool:
        run = ticks.run_id(record.name, record.last)
        busy = bool(record.last) and await markers.read(store, record.queue, run) is not None
        return busy and record.schedule.overlap != "allow"

    with replaced(firing, "is_busy", is_busy):
        yield


@bug
def only_who_decides_starts_the_tick() -> Iterator[None]:
    """If it dies before, nobody else looks whether the run is there."""
    true, write = Scheduler._carry_out, firing.write
    mine: set[tuple[int, str]] = set()

    async def noted(store: Store, stored: Any, record: Any) -> Any:
        written = await write(store, stored, record)
        if written is not None:
            mine.add((id(store), written.nonce))
        return written

    async def carry_out(self: Scheduler, record: Any) -> None:
        if (id(self._store), record.nonce) in mine:
            await true(self, record)

    with replaced(firing, "write", noted), replaced(Scheduler, "_carry_out", carry_out):
        yield


@bug
def a_tick_is_started_once_it_has_a_start() -> Iterator[None]:
    """Whether workers know of its run is not asked."""

    async def is_unknown(store: Store, run: str, start: Any) -> bool:
        return False

    with replaced(firing, "_is_unknown_to_workers", is_unknown):
        yield


@bug
def ticks_are_started_and_then_decided() -> Iterator[None]:
    true = firing.write

    async def write(store: Store, stored: Any, record: Any) -> Any:
        if record.started:
            await firing.carry_out(store, record, "v1")
        return await true(store, stored, record)

    with replaced(firing, "write", write):
        yield


@bug
def every_missed_tick_is_made_up_for() -> Iterator[None]:
    true = ticks.due

    def due(record: Any, now: float) -> Any:
        schedule = msgspec.structs.replace(record.schedule, catch_up="all")
        return true(msgspec.structs.replace(record, schedule=schedule), now)

    with replaced(ticks, "due", due):
        yield


@bug
def the_old_run_is_not_cancelled() -> Iterator[None]:
    """`cancel-old` starts the next, and leaves the old one be if its decider died."""

    async def cancel(store: Store, record: Any) -> None:
        """Nothing."""

    with replaced(firing, "_cancel", cancel):
        yield


@bug
def ticks_of_a_pause_are_made_up_for() -> Iterator[None]:
    def resumed(record: Any, now: float) -> Any:
        return msgspec.structs.replace(record, paused=False)

    with replaced(ticks, "resumed", resumed):
        yield


# -- keys, effects, an outbox ---------------------------------------------------------------------


@bug
def a_key_is_looked_up_and_not_claimed() -> Iterator[None]:
    """The claim is written once the run is there."""
    true = keyed.start

    async def start(store: Store, run: str, start: Any, key: Any, *, begin: Any) -> Any:
        if await store.read(key.claim) is not None:
            return await true(store, run, start, key, begin=begin)
        begun = keyed.Begun(run, keyed._there(await begin(store, run, start), start))
        claim = records.KeyClaim(run, start, store.system.token())
        await store.create(key.claim, records.encode(claim), nonce=claim.nonce)
        return begun

    with replaced(keyed, "start", start):
        yield


@bug
def a_key_is_free_once_its_run_has_no_marker() -> Iterator[None]:
    async def has_ended(store: Store, claim: Any, key: Any) -> bool:
        return await markers.read(store, claim.request.queue, claim.run) is None

    with replaced(keyed, "_has_ended", has_ended):
        yield


@bug
def effects_are_done_and_then_claimed() -> Iterator[None]:
    async def begin(self: Effect, attempt: int) -> bool:
        found = await self._last()
        return found.ended is None

    with replaced(Effect, "_begin", begin):
        yield


@bug
def an_open_effect_is_tried_again() -> Iterator[None]:
    """Whoever finds a claim without a record takes it that nothing happened."""
    true = Effect._begin

    async def begin(self: Effect, attempt: int) -> bool:
        begun = await true(self, attempt)
        return begun or (await self._last()).ended is None

    with replaced(Effect, "_begin", begin):
        yield


@bug
def an_outbox_is_emptied_whatever_is_in_it() -> Iterator[None]:
    """What is deleted need not be what was read."""

    async def delete(self: Document, generation: int) -> bool:
        there = await self._store.read(self._name)
        return there is not None and await self._store.delete(self._name, there.generation)

    with replaced(Document, "delete", delete):
        yield
