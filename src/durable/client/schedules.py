"""The client's words for schedules: created, looked at, paused, triggered, backfilled, removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, ParamSpec, TypeVar

import msgspec

from durable.client.reading import Workers
from durable.decorators import WorkflowFunction
from durable.errors import Conflict, UsageError
from durable.protocol import names, ticks
from durable.protocol.records import ScheduleRecord
from durable.protocol.schedules import Schedule
from durable.runtime import firing, reading
from durable.store import Store

P = ParamSpec("P")
R = TypeVar("R")

State = Literal["active", "paused", "orphaned", "damaged"]

NEXT_SHOWN = 5  # ticks
BACKFILL_MAX = 1000  # ticks at once

_decoder = msgspec.json.Decoder(ScheduleRecord)


class ScheduleSummary(msgspec.Struct, frozen=True):
    """A schedule as it stands. Times are seconds since the epoch, UTC.

    Attributes:
        name: its name; runs are `name@tick`.
        workflow: what it runs.
        when: its ticks, in words.
        state: `active`; `paused`; `orphaned`: no live worker knows the workflow; `damaged`.
        reason: why it is not active.
        by: `code`: a decorator says so; `client`: it was created.
        queue: where its runs go.
        next: the next ticks; empty while it is paused.
        last: the last tick that was started; None if none was.
        last_run: the id of its run; empty if there is none.
        queued: how many ticks wait for the run before them.
        fired: how many ticks were started.
        missed: how many nobody was there for, and the catch-up policy left out.
        skipped: how many fell on a run that was not over.
    """

    name: str
    workflow: str
    when: str
    state: State
    reason: str
    by: str
    queue: str
    catch_up: str
    overlap: str
    next: tuple[float, ...]
    last: float | None
    last_run: str
    queued: int
    fired: int
    missed: int
    skipped: int


class ScheduleList:
    """An asynchronous iterator of ScheduleSummary. No generator: it may be left at any item."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._items = store.list(names.SCHEDULES)
        self._workers: Workers | None = None

    def __aiter__(self) -> ScheduleList:
        return self

    async def __anext__(self) -> ScheduleSummary:
        if self._workers is None:
            self._workers = await Workers.read(self._store)
        stored = await anext(self._items)
        record = await reading.record(self._store, stored, _decoder)
        if record is None:
            return _damaged(names.last_part(stored.name))
        return _summary(record, self._workers, self._store.now())


class Schedules:
    """All schedules of a store.

    Args:
        store: where they are.
        version: of the code, for the runs that are started here.
    """

    def __init__(self, store: Store, version: Callable[[], str]) -> None:
        self._store = store
        self._version = version

    async def create(
        self,
        name: str,
        schedule: Schedule,
        workflow: WorkflowFunction[P, R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> ScheduleSummary:
        """Create a schedule, or change the one of that name. Its past ticks are not made up for.

        Args:
            name: part of the ids of its runs.
            schedule: `cron(...)` or `every(...)`.
            workflow: `report`, or `report.options(queue=..., tags=...)`.
            args: of each run; `kwargs` as well.

        Raises:
            Conflict: the schedule of that name stands in code, which would write it again.
            InvalidArguments: they do not fit the function, or cannot be stored.
            InvalidId: the name cannot be part of an object's name.
            StoreUnavailable: the store does not answer.
        """
        workflow.refuse("dedup_key", "a schedule has one run for each tick")
        workflow.refuse("debounce_key", "a schedule has one run for each tick")
        definition = workflow.definition
        if not isinstance(schedule, Schedule):
            raise UsageError(
                f"{schedule!r} is no schedule", hint='write cron("0 2 * * *") or every("15m")'
            )
        asked = firing.asked_for(
            definition,
            name,
            schedule,
            call=(args, kwargs),
            by="client",
            tags=workflow.tags,
            priority=workflow.priority,
        )

        def created(there: ScheduleRecord | None) -> ScheduleRecord | None:
            if there is not None and there.by == "code":
                raise _in_code(there)
            return ticks.declared(there, asked, self._store.now())

        record = await firing.change(self._store, name, created)
        assert record is not None
        return _summary(record, await Workers.read(self._store), self._store.now())

    async def get(self, name: str) -> ScheduleSummary:
        """The schedule of that name.

        Raises:
            NotFound: there is none.
            UsageError: its object is damaged.
        """
        record = await self._read(name)
        return _summary(record, await Workers.read(self._store), self._store.now())

    def list(self) -> ScheduleList:
        """All schedules, by name, damaged ones too; to be iterated with `async for`."""
        return ScheduleList(self._store)

    async def pause(self, name: str) -> None:
        """Start no further tick until it is resumed. What is started goes on.

        Raises:
            NotFound: there is none.
        """
        await self._change(name, ticks.paused)

    async def resume(self, name: str) -> None:
        """Go on with the next tick; those of the pause are not made up for.

        Raises:
            NotFound: there is none.
        """
        await self._change(name, lambda record: ticks.resumed(record, self._store.now()))

    async def trigger(self, name: str) -> str:
        """Start a run of it now, whatever the overlap policy says; returns the run's id.

        Raises:
            NotFound: there is none.
            StoreUnavailable: it may have started.
        """
        now = round(self._store.now(), 3)

        async def settled() -> None:
            await firing.carry_out(self._store, await self._read(name), self._version())

        await settled()  # a decision may be replaced only once its runs are there
        await self._change(name, lambda record: ticks.start(record, [now]))
        await settled()
        return ticks.run_id(name, now)

    async def backfill(
        self, name: str, start: datetime, end: datetime, *, limit: int = BACKFILL_MAX
    ) -> tuple[str, ...]:
        """Start the runs of past ticks that have none, all at once; returns their ids.

        Done again it starts only what is missing, because a tick's run has the tick in its id.

        Args:
            name: of the schedule.
            start: the first moment whose tick counts; with a time zone.
            end: the last.
            limit: more ticks than that are refused.

        Raises:
            NotFound: there is none.
            UsageError: a moment without a time zone, in the future, or before the first; or too
                many ticks.
            StoreUnavailable: some may have started; do it again.
        """
        record = await self._read(name)
        return tuple(
            [
                ticks.run_id(name, tick)
                for tick in self._ticks(record, start, end, limit)
                if await firing.start_tick(self._store, record, tick, self._version())
            ]
        )

    async def remove(self, name: str) -> None:
        """Remove it; its runs stay. A worker whose code has it writes it again when it starts.

        Raises:
            NotFound: there is none.
        """
        await firing.remove(self._store, ticks.check_name(name))

    async def _read(self, name: str) -> ScheduleRecord:
        stored = await self._store.read(names.schedule(ticks.check_name(name)))
        if stored is None:
            raise firing.not_found(name)
        return firing.decode(stored)

    async def _change(self, name: str, new: Callable[[ScheduleRecord], ScheduleRecord]) -> None:
        def changed(there: ScheduleRecord | None) -> ScheduleRecord:
            if there is None:
                raise firing.not_found(name)
            return new(there)

        await firing.change(self._store, ticks.check_name(name), changed)

    def _ticks(
        self, record: ScheduleRecord, start: datetime, end: datetime, limit: int
    ) -> Sequence[float]:
        if start.tzinfo is None or end.tzinfo is None:
            raise UsageError(
                "a backfill's moments have a time zone", hint="write datetime(..., tzinfo=UTC)"
            )
        first, last = start.timestamp(), end.timestamp()
        if last < first:
            raise UsageError(f"a backfill from {start} to {end} ends before it begins")
        if last > self._store.now():
            raise UsageError("a backfill ends in the past; what is to come, the schedule starts")
        found = ticks.between(record.schedule, first, last, limit)
        if found is None:
            raise UsageError(
                f"schedule {record.name!r} has more than {limit} ticks from {start} to {end}",
                hint="backfill a shorter time, or raise the limit",
            )
        return found


def _in_code(there: ScheduleRecord) -> Conflict:
    return Conflict(
        f"schedule {there.name!r} stands in the code of workflow {there.workflow!r}, and each "
        "worker that starts writes it as it stands there",
        hint="change it in the code, or use another name; if it is no longer in the code: "
        f"`durable schedules remove {there.name}`",
    )


def _summary(record: ScheduleRecord, workers: Workers, now: float) -> ScheduleSummary:
    state, reason = _state(record, workers)
    schedule = record.schedule
    coming = [] if record.paused else ticks.upcoming(schedule, max(now, record.through), NEXT_SHOWN)
    return ScheduleSummary(
        name=record.name, workflow=record.workflow, when=str(schedule.when), state=state,
        reason=reason, by=record.by, queue=record.queue, catch_up=str(schedule.catch_up),
        overlap=schedule.overlap, next=tuple(coming), last=record.last or None,
        last_run=ticks.run_id(record.name, record.last) if record.last else "",
        queued=len(record.queued), fired=record.fired, missed=record.missed,
        skipped=record.skipped,
    )  # fmt: skip


def _state(record: ScheduleRecord, workers: Workers) -> tuple[State, str]:
    if record.paused:
        return "paused", ""
    alive = [w for w in workers.found.values() if w.state == "alive" and w.queues]
    if not alive:
        return "orphaned", "no live worker"
    if not any(record.workflow in w.workflows for w in alive):
        return "orphaned", f"no live worker knows workflow {record.workflow!r}"
    return "active", ""


def _damaged(name: str) -> ScheduleSummary:
    return ScheduleSummary(
        name, workflow="", when="", state="damaged", reason="its object is damaged or foreign",
        by="", queue="", catch_up="", overlap="", next=(), last=None, last_run="", queued=0,
        fired=0, missed=0, skipped=0,
    )  # fmt: skip
