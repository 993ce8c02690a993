"""The registers of schedules: read, changed by compare-and-swap, and carried out.

What is decided is in durable.protocol.ticks. A decision names the ticks that it starts before
any of them has a run; `carry_out` gives them one, and may be repeated by anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from durable import catalog
from durable.catalog import Contention
from durable.errors import NotFound
from durable.protocol import names, records, ticks, values
from durable.protocol.calls import Call
from durable.protocol.records import ScheduleRecord, Start
from durable.protocol.schedules import Schedule
from durable.runtime import asking, slots, starting
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.facts import read_start
from durable.store import Refused, Store, Stored, Written

TAG = "schedule"  # of runs that a schedule started

Change = Callable[[ScheduleRecord | None], ScheduleRecord | None]


def decode(stored: Stored) -> ScheduleRecord:
    """The register in an object that came with its body.

    Raises:
        UsageError: it is none.
    """
    return catalog.decode_record(ScheduleRecord, stored)


async def change(store: Store, name: str, new: Change) -> ScheduleRecord | None:
    """Change a register, and tell the workers; returns what stands there then.

    Args:
        name: of the schedule.
        new: takes what is there and returns what shall be, None for nothing to change. Called
            again whenever somebody else was quicker.

    Raises:
        UsageError: the object is damaged, or no schedule.
        StoreUnavailable: no answer; or others always were quicker.
    """
    contention = Contention(store, names.schedule(name))
    while True:
        stored = await store.read(names.schedule(name))
        there = None if stored is None else decode(stored)
        wanted = new(there)
        if wanted is None or wanted == there:
            return there
        written = await write(store, stored, wanted)
        if written is not None:
            await tell(store)
            return written
        await contention.lost()


async def write(
    store: Store, stored: Stored | None, record: ScheduleRecord
) -> ScheduleRecord | None:
    """Put the register in the place of what was read; None: somebody was quicker."""
    record = msgspec.structs.replace(record, nonce=store.system.token())
    name, body = names.schedule(record.name), records.encode(record)
    answer = await catalog.put(store, name, stored, body, nonce=record.nonce)
    return record if isinstance(answer, Written) else None


async def remove(store: Store, name: str) -> None:
    """Delete a register; runs that it started stay as they are.

    Raises:
        NotFound: there is no schedule of that name.
        StoreUnavailable: no answer; or others always were quicker.
    """
    contention = Contention(store, names.schedule(name))
    while (stored := await store.read(names.schedule(name))) is not None:
        if await store.delete(stored.name, stored.generation):
            return await tell(store)
        await contention.lost()
    raise not_found(name)


async def tell(store: Store) -> None:
    """Have every worker read the schedules anew, within its slow period."""
    stored = await store.read(names.SCHEDULES_CHANGED)
    # If somebody else is quicker, the object has changed, and that is all it is for.
    await catalog.put(store, names.SCHEDULES_CHANGED, stored, b"{}", nonce=store.system.token())


def not_found(name: str) -> NotFound:
    """The error for a name without a schedule."""
    return NotFound(f"there is no schedule {name!r}", hint="`durable schedules list` shows them")


def asked_for(
    definition: WorkflowDefinition,
    name: str,
    schedule: Schedule,
    *,
    call: Call,
    by: Literal["code", "client"],
    tags: Mapping[str, str],
    priority: int = 0,
) -> ScheduleRecord:
    """The register of a schedule that runs this workflow.

    Args:
        call: the arguments of its runs.
        tags: of its runs; `priority` in their queue as well.

    Raises:
        InvalidArguments: they do not fit the function, or cannot be stored.
        UsageError: the name cannot be part of run ids.
    """
    encoded = values.encode_call(
        definition.signature, definition.hints, *call, name=definition.name
    )
    return ScheduleRecord(
        name=ticks.check_name(name), workflow=definition.name, input=msgspec.Raw(encoded),
        schedule=schedule, nonce="", queue=definition.queue, tags=dict(tags), by=by,
        timeout=definition.timeout, workflow_version=definition.version,
        pinned=definition.pinned,
        lock=definition.lock(*call), limited=definition.is_limited, priority=priority,
        label=definition.label,
    )  # fmt: skip


# -- runs -----------------------------------------------------------------------------------------


async def carry_out(store: Store, record: ScheduleRecord, version: str) -> list[str]:
    """Start the ticks of the last decision that have no run yet; returns their ids.

    Raises:
        StoreUnavailable: some may have started; do it again.
    """
    if record.cancelling:
        await _cancel(store, record)
    begun = []
    for tick in record.started:
        run = ticks.run_id(record.name, tick)
        start = await read_start(store, run)
        if start is None:
            if await start_tick(store, record, tick, version):
                begun.append(run)
        elif await _is_unknown_to_workers(store, run, start):
            await starting.start(store, run, start)
            begun.append(run)
    return begun


async def _is_unknown_to_workers(store: Store, run: str, start: Start) -> bool:
    """Whether whoever started it was cut off between `start` and the marker."""
    if start.tombstone or await store.read(names.result(run, start.instance)) is not None:
        return False
    if await store.read(names.marker(start.queue, run)) is not None:
        return False
    # What has been carried has left something; what waits for a slot has a place in line.
    if (await store.page(names.instance_folder(run, start.instance))).items:
        return False
    return not start.limited or await store.read(slots.pending_name(run, start)) is None


async def _cancel(store: Store, record: ScheduleRecord) -> None:
    run = ticks.run_id(record.name, record.cancelling)
    start = await read_start(store, run)
    if start is None or start.tombstone:
        return
    if await store.read(names.result(run, start.instance)) is None:
        await asking.cancel(store, run, start, f"schedule {record.name!r} started the next tick")


async def start_tick(store: Store, record: ScheduleRecord, tick: float, version: str) -> bool:
    """Start the run of one tick; False: it has one."""
    token, now = store.system.token, store.now()
    start = Start(
        workflow=record.workflow, input=record.input, nonce=token(), queue=record.queue,
        instance=starting.random_id(store.system), version=version,
        tags={**record.tags, TAG: record.name}, created=now, tick=tick,
        workflow_version=record.workflow_version, pinned=record.pinned, lock=record.lock,
        limited=record.limited, priority=record.priority, label=record.label,
        deadline=0.0 if record.timeout is None else now + record.timeout,
    )  # fmt: skip
    run = ticks.run_id(record.name, tick)
    return not isinstance(await starting.start(store, run, start), Refused)


async def is_busy(store: Store, record: ScheduleRecord) -> bool:
    """Whether the run of the last started tick is not over."""
    if not record.last or record.schedule.overlap == "allow":
        return False
    run = ticks.run_id(record.name, record.last)
    start = await read_start(store, run)
    if start is None or start.tombstone:
        return False
    return await store.read(names.result(run, start.instance)) is None
