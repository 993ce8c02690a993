"""A worker's part in schedules: it writes those of its code, and starts what is due.

Each worker keeps in memory when the next tick of each schedule is that it has the code for.
Until then it writes nothing and reads one small object each slow period, whose generation tells
that some schedule was changed. At a tick each worker reads the register; the first to change it
has decided, and starts the run. The others look once more a little later whether the run is
there, because the one that decided may have died.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import anyio
import msgspec

from durable.errors import DurableError, StoreError
from durable.protocol import names, ticks
from durable.protocol.records import ScheduleRecord
from durable.runtime import firing, reading
from durable.runtime.definitions import WorkflowDefinition, Workflows
from durable.runtime.facts import CorruptFact
from durable.store import Store

log = logging.getLogger("durable")

CONFIRM_AFTER = 5.0  # seconds after a decision of another worker: are its runs there?

# What one schedule may be at fault for: damage, a zone that is not here, a date out of range.
_FAULTS = (DurableError, CorruptFact, ValueError, OverflowError, OSError)

_decoder = msgspec.json.Decoder(ScheduleRecord)


@dataclass
class _Entry:
    """A schedule as last read, and when to attend to it; times are the store's."""

    record: ScheduleRecord
    fire_at: float = math.inf
    confirm_at: float = math.inf

    @property
    def due_at(self) -> float:
        return min(self.fire_at, self.confirm_at)


class Scheduler:
    """Attends to the schedules of the workflows that are served here.

    Args:
        version: of the code, for the runs it starts.
        polls: False learns of changes only when told to hurry.
        on_start: called when runs were started.

    Attributes:
        settled: whether everything that was due at the beginning has been started.
    """

    def __init__(
        self,
        store: Store,
        workflows: Workflows,
        *,
        version: str,
        on_start: Callable[[], None],
        polls: bool = True,
    ) -> None:
        self.settled = False
        self._polls = polls
        self._news = anyio.Event()
        self._store = store
        self._workflows = workflows
        self._version = version
        self._on_start = on_start
        self._entries: dict[str, _Entry] = {}
        self._carried_out: dict[str, str] = {}  # by schedule: nonce of the decision
        self._declared = False
        self._known = -1  # generation of the object that changes when a schedule does
        self._learn_at = 0.0

    async def look(self) -> None:
        """Wait until something is due, and attend to it. The first call does not wait."""
        if self.settled:
            await self._rest()
        if not self._declared:
            await self._declare_all()
            self._declared = True
        if self._store.system.boot() >= self._learn_at:
            await self._learn()
        failed: StoreError | None = None
        for entry in self._due():
            failed = await self._attend_or_warn(entry) or failed
        self.settled = failed is None
        if failed is not None:
            raise failed

    def hurry(self) -> None:
        """Some schedule was changed: learn it now."""
        self._learn_at = 0.0
        self._news.set()

    async def _rest(self) -> None:
        due_at = min((e.due_at for e in self._entries.values()), default=math.inf)
        system = self._store.system
        left = min(due_at - self._store.now(), self._learn_at - system.boot())
        with anyio.move_on_after(max(0.0, left)):
            await self._news.wait()
            self._news = anyio.Event()

    def _due(self) -> list[_Entry]:
        now = self._store.now()
        return sorted(
            (e for e in self._entries.values() if e.due_at <= now), key=lambda e: e.due_at
        )

    # -- learning ---------------------------------------------------------------------------------

    async def _declare_all(self) -> None:
        for definition in self._workflows.values():
            if definition.schedule is not None:
                try:
                    await self._declare(definition)
                except StoreError:
                    raise
                except DurableError as e:
                    log.warning("the schedule of %r is left as it is: %s", definition.name, e)

    async def _declare(self, definition: WorkflowDefinition) -> None:
        assert definition.schedule is not None
        asked = firing.asked_for(
            definition, definition.name, definition.schedule, call=((), {}), by="code", tags={}
        )
        await firing.change(
            self._store, asked.name, lambda there: ticks.declared(there, asked, self._store.now())
        )

    async def _learn(self) -> None:
        stored = await self._store.read(names.SCHEDULES_CHANGED)
        generation = 0 if stored is None else stored.generation
        if generation != self._known:
            await self._read_all()
            self._known = generation
        slow = self._store.pace.slow * self._store.system.uniform(0.8, 1.2)
        slow = slow if self._polls else math.inf
        self._learn_at = self._store.system.boot() + slow

    async def _read_all(self) -> None:
        found: dict[str, _Entry] = {}
        async for stored in self._store.list(names.SCHEDULES):
            record = await reading.record(self._store, stored, _decoder)
            if record is not None and record.workflow in self._workflows:
                if names.schedule(record.name) == stored.name:
                    found[record.name] = self._planned(record)
        self._entries = found

    def _planned(self, record: ScheduleRecord, *, confirm_after: float = 0.0) -> _Entry:
        entry, now = _Entry(record), self._store.now()
        spread = self._store.system.uniform(0, self._store.pace.bell)
        try:
            entry.fire_at = ticks.next_fire(record) + spread
        except _FAULTS as e:
            log.warning("schedule %r has no next tick here: %s", record.name, e)
        if record.queued and not record.paused:
            entry.fire_at = min(entry.fire_at, now + self._store.pace.busy)
        if record.started and self._carried_out.get(record.name) != record.nonce:
            entry.confirm_at = now + confirm_after
        return entry

    # -- firing -----------------------------------------------------------------------------------

    async def _attend_or_warn(self, entry: _Entry) -> StoreError | None:
        """Whatever is wrong with one schedule, the others go on."""
        try:
            await self._attend(entry.record.name)
        except StoreError as e:
            return e
        except _FAULTS as e:
            log.warning("schedule %r is left alone until it changes: %s", entry.record.name, e)
            self._entries.pop(entry.record.name, None)
        return None

    async def _attend(self, name: str) -> None:
        stored = await self._store.read(names.schedule(name))
        if stored is None:
            self._entries.pop(name, None)
            return
        record = firing.decode(stored)
        if record.workflow not in self._workflows:
            self._entries.pop(name, None)
            return
        before = self._entries[name]
        if ticks.decide(record, self._store.now(), busy=False) is None:
            # Somebody else has decided; unless its runs were to be here by now, give it time.
            if before.confirm_at <= self._store.now():
                await self._carry_out(record)
            self._entries[name] = self._planned(record, confirm_after=CONFIRM_AFTER)
            return
        await self._carry_out(record)
        busy = await firing.is_busy(self._store, record)
        decided = ticks.decide(record, self._store.now(), busy=busy)
        if decided is not None:
            written = await firing.write(self._store, stored, decided)
            if written is None:
                return  # read it again at the next look
            record = written
            await self._carry_out(record)
        self._entries[name] = self._planned(record)

    async def _carry_out(self, record: ScheduleRecord) -> None:
        """Nothing is decided before what was decided last has its runs."""
        if self._carried_out.get(record.name) == record.nonce:
            return
        begun = await firing.carry_out(self._store, record, self._version)
        self._carried_out[record.name] = record.nonce
        if begun:
            log.info("schedule %r started %s", record.name, ", ".join(begun))
            self._on_start()
