"""What a schedule does next: decided once for each tick, and written into its register.

A decision is a compare-and-swap of the register: it moves `through` and names the ticks that it
starts. Only then are their runs started, each under an id made of the schedule's name and the
tick, so a tick has one run whoever starts it. If the decider dies in between, whoever comes next
finds a started tick without a run and starts it. A decision that comes late is refused, so
nothing is started that somebody else has counted as missed or skipped.
"""

from __future__ import annotations

import itertools
import math

import msgspec

from durable.errors import UsageError
from durable.protocol import moments, names, records, schedules
from durable.protocol.records import ScheduleRecord
from durable.protocol.schedules import CATCH_UP_MAX, Schedule

# Seconds after which a tick counts as missed. Workers learn of a new schedule within a minute.
LATE = 120.0
NAME_BYTES_MAX = names.ID_BYTES_MAX - 40  # once encoded; leaves room for the tick in the run's id


def check_name(name: str) -> str:
    """The name, if a schedule can have it.

    Raises:
        InvalidId: it cannot be part of an object's name.
        UsageError: it is too long.
    """
    if len(names.check_id(name, what="name of a schedule")) > NAME_BYTES_MAX:
        raise UsageError(
            f"the name {name[:40]!r}... of a schedule is too long to be part of run ids",
            hint=f"at most {NAME_BYTES_MAX} bytes once encoded",
        )
    return name


def run_id(name: str, tick: float) -> str:
    """The id of the run of that tick."""
    return f"{name}@{moments.second(tick)}"


def next_fire(record: ScheduleRecord) -> float:
    """When the next tick is to be started; infinity: never, as it stands."""
    if record.paused:
        return math.inf
    tick = schedules.next_tick(record.schedule.when, record.through)
    if tick is None:
        return math.inf
    return tick + schedules.delay(record.schedule, record.name, tick)


class Due(msgspec.Struct, frozen=True):
    """Ticks to decide on.

    Attributes:
        through: the last of them.
        wanted: those that the catch-up policy wants to run, in order.
        missed: how many it does not; what is older than the newest 1,000 is not counted.
    """

    through: float
    wanted: list[float]
    missed: int


def due(record: ScheduleRecord, now: float) -> Due | None:
    """What has come due since the last decision; None if nothing has."""
    if record.paused:
        return None
    schedule = record.schedule

    def late(tick: float) -> float:
        return now - tick - schedules.delay(schedule, record.name, tick)

    found = schedules.newest(schedule.when, record.through, now, CATCH_UP_MAX)
    ready = list(itertools.takewhile(lambda tick: late(tick) >= 0, found))
    if not ready:
        return None
    count = max(schedule.catch_up_max, int(late(ready[-1]) <= LATE))
    wanted = ready[len(ready) - min(count, len(ready)) :]
    return Due(ready[-1], wanted, len(ready) - len(wanted))


def decide(record: ScheduleRecord, now: float, *, busy: bool) -> ScheduleRecord | None:
    """The register after the decision; None if there is nothing to decide.

    Args:
        busy: whether the run of the last started tick is not over.
    """
    found = due(record, now)
    if found is None:
        return _unqueue(record) if record.queued and not busy and not record.paused else None
    wanted = found.wanted
    next_record = msgspec.structs.replace(
        record, through=found.through, missed=record.missed + found.missed
    )
    match record.schedule.overlap:
        case "queue":
            queued = _queue(next_record, wanted)
            return queued if busy or not queued.queued else _unqueue(queued)
        case "skip" if busy:
            return msgspec.structs.replace(next_record, skipped=record.skipped + len(wanted))
        case "cancel-old" if busy and wanted:
            return start(next_record, wanted, cancelling=record.last)
    return start(next_record, wanted)


def start(
    record: ScheduleRecord, wanted: list[float], *, cancelling: float = 0.0
) -> ScheduleRecord:
    """The register after these ticks were decided to run.

    What was started before must have been found, or started, since the register was read.
    """
    if not wanted:
        return record
    return msgspec.structs.replace(
        record, started=wanted, last=wanted[-1], fired=record.fired + len(wanted),
        cancelling=cancelling,
    )  # fmt: skip


def _queue(record: ScheduleRecord, wanted: list[float]) -> ScheduleRecord:
    queued = [*record.queued, *wanted]
    kept = queued[:CATCH_UP_MAX]
    return msgspec.structs.replace(
        record, queued=kept, skipped=record.skipped + len(queued) - len(kept)
    )


def _unqueue(record: ScheduleRecord) -> ScheduleRecord:
    first, *rest = record.queued
    return start(msgspec.structs.replace(record, queued=rest), [first])


def declared(
    there: ScheduleRecord | None, asked: ScheduleRecord, now: float
) -> ScheduleRecord | None:
    """The register after somebody declared the schedule; None if it says so already.

    A tick that was due before the schedule was there, or before it was changed, is none of it.
    A pause stays; so does what is started or queued.
    """
    if there is None:
        return msgspec.structs.replace(asked, created=now, through=now)
    through = now if there.schedule.when != asked.schedule.when else there.through
    new = msgspec.structs.replace(
        there, workflow=asked.workflow, input=asked.input, schedule=asked.schedule,
        queue=asked.queue, tags=asked.tags, timeout=asked.timeout, lock=asked.lock,
        by=asked.by, workflow_version=asked.workflow_version, pinned=asked.pinned,
        limited=asked.limited, priority=asked.priority, label=asked.label,
        through=max(through, there.through),
    )  # fmt: skip
    return None if records.encode(new) == records.encode(there) else new


def paused(record: ScheduleRecord) -> ScheduleRecord:
    """The register while nothing is to be decided."""
    return msgspec.structs.replace(record, paused=True)


def resumed(record: ScheduleRecord, now: float) -> ScheduleRecord:
    """The register after a pause, whose ticks are none."""
    if not record.paused:
        return record
    return msgspec.structs.replace(record, paused=False, through=max(now, record.through))


def upcoming(schedule: Schedule, after: float, count: int) -> list[float]:
    """The next ticks, for people."""
    found: list[float] = []
    for tick in schedules.ticks(schedule.when, after):
        found.append(tick)
        if len(found) == count:
            break
    return found


def between(schedule: Schedule, first: float, last: float, limit: int) -> list[float] | None:
    """The ticks from `first` to `last`, both included; None: more than `limit`."""
    found = upcoming(schedule, math.ceil(first) - 1, limit + 1)  # ticks are on whole seconds
    inside = [tick for tick in found if tick <= last]
    return None if len(inside) > limit else inside
