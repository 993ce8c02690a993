"""What the store says of a run: its outcome, its status and why, its recorded calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self, TypeVar
from urllib.parse import unquote

import msgspec

from durable.errors import NeedsAttention, NotFound
from durable.protocol import leases, moments, names, records, singletons, values
from durable.protocol.records import (
    Holder,
    Lease,
    Pauses,
    Presence,
    Published,
    Result,
    Start,
    Step,
    Wait,
)
from durable.runtime import admission, debouncing, flags, reading, slots, timers
from durable.runtime import facts as facts_of_runs
from durable.runtime.facts import CorruptFact, Facts
from durable.runtime.lines import read_pauses
from durable.store import Store, Stored

W = TypeVar("W", Lease, Presence)

Word = Literal[
    "waiting", "running", "parked", "needs-attention", "completed", "failed", "cancelled"
]

PRESENCE_KEPT = 150.0  # seconds; a worker shows itself once a minute, so it missed one already

_lease = msgspec.json.Decoder(Lease)
_presence = msgspec.json.Decoder(Presence)


class Status(str):
    """One of the status words, with the reason why it is that.

    Attributes:
        reason: why a run waits or needs attention; empty where there is nothing to say.
        interrupted: whoever started it died before telling the workers; starting it again under
            the same id, or retrying it, does.
    """

    __slots__ = ("interrupted", "reason")
    reason: str
    interrupted: bool

    def __new__(cls, word: Word, reason: str = "", *, interrupted: bool = False) -> Self:
        status = super().__new__(cls, word)
        status.reason = reason
        status.interrupted = interrupted
        return status


class StepSummary(msgspec.Struct, frozen=True):
    """One recorded call of a run.

    Attributes:
        path: its place in the run's call tree.
        name: the step's name.
        outcome: `value`, `error`, `cancelled` or `abandoned`; `retrying` while only failed
            attempts are recorded; `waiting` while a wait has begun and is not over.
        value: what it returned, read without its annotation: users' classes are dicts.
        error: `type: message` of what it raised; of the last attempt while it is retrying.
        attempts: how often the body was tried.
        epoch: under which owner of the run it was recorded.
        time: when, in seconds since the epoch by the store's clock.
        note: who recorded it by hand, and why.
        traceback: where its body raised the error, as text.
    """

    path: str
    name: str
    outcome: str
    value: object
    error: str
    attempts: int
    epoch: int
    time: float
    note: str = ""
    traceback: str = ""


# -- one run ---------------------------------------------------------------------------------------


async def read_start(store: Store, run: str) -> Start:
    """The run's `start`.

    Raises:
        NotFound: there is no run of that id.
        NeedsAttention: the object is damaged or foreign.
    """
    names.check_id(run)
    stored = await store.read(names.start(run))
    start = None if stored is None else decode_start(run, stored)
    if start is None or start.tombstone:
        raise NotFound(f"there is no run {run!r}", hint="`durable list` shows the runs", run=run)
    return start


def decode_start(run: str, stored: Stored) -> Start:
    """The record in a `start` object.

    Raises:
        NeedsAttention: it is damaged or foreign.
    """
    try:
        return facts_of_runs.decode_start(stored)
    except CorruptFact as e:
        raise corrupt(run, e) from e


async def read_result(store: Store, run: str, instance: str) -> Result | None:
    """The outcome of the instance, None while it is not over.

    Raises:
        NeedsAttention: the object is damaged or foreign.
    """
    stored = await store.read(names.result(run, instance))
    try:
        return None if stored is None else facts_of_runs.decode_result(stored)
    except CorruptFact as e:
        raise corrupt(run, e) from e


async def joined(store: Store, holder: Holder) -> tuple[str, Start]:
    """The run whose outcome another shares, and its `start` under the instance that is meant.

    Raises:
        NotFound: it was purged.
    """
    start = await read_start(store, holder.run)
    return holder.run, msgspec.structs.replace(start, instance=holder.instance)


async def read_attention(store: Store, run: str, start: Start) -> records.Attention | None:
    """What the run needs a human for; None while somebody works on it or it needs nobody."""
    hint = await flags.read(store, start.queue, run)
    if hint is None or hint.instance != start.instance:
        return None
    # A marker: it was woken since, so what the hint says is being tried again.
    marker = await store.read(names.marker(start.queue, run))
    return hint if marker is None else None


async def load(store: Store, run: str, *, damaged: bool = False) -> Facts:
    """Everything that is recorded of a run.

    Args:
        damaged: pass over what cannot be read, but for `start`.

    Raises:
        NotFound: there is no run of that id.
        NeedsAttention: an object of its folder is damaged or foreign.
    """
    try:
        facts = await facts_of_runs.load(store, run, damaged=damaged)
    except CorruptFact as e:
        raise corrupt(run, e) from e
    if facts is None or facts.start.tombstone:
        raise NotFound(f"there is no run {run!r}", hint="`durable list` shows the runs", run=run)
    return facts


async def published(store: Store, run: str, instance: str) -> dict[str, Published]:
    """The progress that the instance has published, by name: of each the highest epoch's.

    Raises:
        NeedsAttention: an object among it is damaged or foreign.
    """
    found: dict[str, Published] = {}
    async for stored in store.list(names.state_folder(run, instance)):
        full = await reading.with_body(store, stored)
        if full is None:
            continue
        try:
            record = facts_of_runs.decode_published(full)
        except CorruptFact as e:
            raise corrupt(run, e) from e
        _keep_highest(found, record)
    return found


def newest(records: Iterable[Published]) -> dict[str, Published]:
    """Of each name the highest epoch's."""
    found: dict[str, Published] = {}
    for record in records:
        _keep_highest(found, record)
    return found


def _keep_highest(found: dict[str, Published], record: Published) -> None:
    there = found.get(record.name)
    if there is None or there.epoch < record.epoch:
        found[record.name] = record


def corrupt(run: str, error: CorruptFact) -> NeedsAttention:
    """A damaged object as clients see it."""
    return NeedsAttention(
        f"run {run!r}: {error}",
        reason="corrupt",
        hint="look at the object in the store; remove it if it does not belong there",
        run=run,
    )


async def read_status(store: Store, run: str, start: Start) -> Status:
    """The run's status word and why.

    An outcome goes before a marker, a marker before an attention hint.
    """
    result = await read_result(store, run, start.instance)
    if result is not None:
        return Status(result.status, singletons.ending(result))
    stored = await store.read(names.marker(start.queue, run))
    if stored is not None:
        holder = stored.meta.get("holder", "")
        workers = await Workers.read(store)
        return damage(stored) or workers.status(
            start.workflow, start.queue, holder, label=start.label, pin=start.pin
        )
    hint = await flags.read(store, start.queue, run)
    if hint is not None and hint.instance == start.instance:
        return Status("needs-attention", f"{hint.reason}: {hint.message}")
    result = await read_result(store, run, start.instance)  # it may have ended meanwhile
    if result is not None:
        return Status(result.status, singletons.ending(result))
    if await store.read(slots.pending_name(run, start)) is not None:
        unserved = (await Workers.read(store)).why_unserved(
            start.workflow, start.queue, label=start.label, pin=start.pin
        )
        return in_line(start.queue, unserved)
    facts = await facts_of_runs.load(store, run)
    if facts is not None and facts.result is None:
        waiting = facts.waiting()
        if facts.start.is_collecting and waiting:
            return Status("parked", debouncing.why(facts.start))
        timer = await timers.newest(store, run, start, waiting)
        if timer is not None or waiting:
            what = timer.waits_for if timer else what_it_waits_for(facts.standing())
            return Status("parked", what)
    why = "its start was interrupted: start it again under the same id, or retry it"
    return Status("waiting", why, interrupted=True)


def in_line(queue: str, unserved: str) -> Status:
    """The status of a run that waits for a slot of its queue.

    Args:
        unserved: why no worker would take it; empty if one would.
    """
    return Status("waiting", unserved or f"in line for a slot of queue {queue!r}")


def what_it_waits_for(waits: list[Wait]) -> str:
    """The reason that is shown of a parked run: the deadline that comes first, and events."""
    events = sorted({wait.name.removeprefix("event-") for wait in waits if wait.kind == "event"})
    dues = [wait.due for wait in waits if wait.due is not None]
    said = [f"for event {', '.join(map(repr, events))}"] if events else []
    said += [f"until {moments.second(min(dues))}"] if dues else []
    return " ".join(said)


def damage(marker: Stored) -> Status | None:
    """What the status is if nobody can read the marker; None if it can be read.

    A list leaves large bodies out: those are not looked at.
    """
    if marker.body is None or records.is_marker(marker.body):
        return None
    why = f"its marker {marker.name!r} is damaged or foreign, and no worker can take it"
    return Status("needs-attention", f"corrupt: {why}; stop whoever runs it, then retry it")


def summarize(facts: Facts) -> list[StepSummary]:
    """The recorded calls in their order, then the open ones that have left a trace so far."""
    journal = facts.journal()
    done = [_summary(step) for step in journal.order]
    paths = {step.path for step in journal.order}
    tried = [
        StepSummary(
            path=attempt.path, name=name_of(attempt.path), outcome="retrying", value=None,
            error=f"{attempt.failure.type}: {attempt.failure.message}", attempts=attempt.attempt,
            epoch=attempt.epoch, time=attempt.time, traceback=attempt.failure.traceback,
        )
        for path, attempt in journal.attempts.items()
        if path not in paths and path not in journal.closed
    ]  # fmt: skip
    waiting = [] if facts.result else facts.standing()
    begun = max((epoch.time for epoch in facts.epochs if epoch.worker), default=0.0)
    waits = [
        wait
        for wait in waiting
        if wait.path not in journal.attempts
        and (wait.path not in admission.PATHS or wait.time > begun)
    ]
    return done + tried + [_open_wait(wait) for wait in waits]


def _open_wait(wait: Wait) -> StepSummary:
    return StepSummary(
        path=wait.path, name=wait.name, outcome="waiting", value=None, error="", attempts=0,
        epoch=wait.epoch, time=wait.time, note=what_it_waits_for([wait]),
    )  # fmt: skip


def _summary(step: Step) -> StepSummary:
    failure = step.failure
    return StepSummary(
        path=step.path, name=step.name, outcome=step.outcome, value=plain_value(step.value),
        error=f"{failure.type}: {failure.message}" if failure else "", attempts=step.attempt,
        epoch=step.epoch, time=step.time, note=step.note,
        traceback=failure.traceback if failure else "",
    )  # fmt: skip


def plain_value(stored: msgspec.Raw | msgspec.UnsetType) -> object:
    """A stored value, read without its annotation."""
    if isinstance(stored, msgspec.UnsetType):
        return None
    try:
        return values.decode(stored)
    except values.Undecodable:
        return msgspec.json.decode(stored)


def name_of(path: str) -> str:
    """The name of what is called at that path."""
    last = path.rsplit("/", 1)[-1]
    return unquote(last.split("=", 1)[0] if "=" in last else last.rsplit(".", 1)[0])


# -- workers ---------------------------------------------------------------------------------------


class WorkerSummary(msgspec.Struct, frozen=True):
    """A worker as others see it.

    Attributes:
        state: `alive`, `expired` (its lease ran out, nobody has noticed yet) or `dead`.
        seen: when it last wrote, in seconds since the epoch by the store's clock.
    """

    id: str
    label: str
    state: str
    queues: tuple[str, ...]
    workflows: tuple[str, ...]
    seen: float


class Workers:
    """All workers that have a lease or have shown themselves lately, and what they leave alone.

    Args:
        found: by id.
        pauses: what none of them starts.
    """

    def __init__(self, found: dict[str, WorkerSummary], pauses: Pauses) -> None:
        self.found = found
        self.pauses = pauses

    @classmethod
    async def read(cls, store: Store) -> Workers:
        """Two lists, of leases and of the presence of workers that hold no run, and one read."""
        found: dict[str, WorkerSummary] = {}
        async for stored in store.list(names.PRESENCE):
            if store.now() - stored.updated >= PRESENCE_KEPT:
                continue
            shown = await reading.record(store, stored, _presence)
            if shown is not None:
                found[shown.worker] = WorkerSummary(
                    shown.worker, shown.label, "alive", tuple(shown.queues),
                    tuple(shown.workflows), stored.updated,
                )  # fmt: skip
        async for stored in store.list(names.WORKERS):
            lease = reading.decoded(stored, _lease)
            if lease is not None:
                verdict = leases.verdict(
                    lease, updated=stored.updated, now=store.now(), boot=store.backend.boot
                )
                state = "dead" if verdict == "takeable" else verdict
                serves = found.get(lease.worker)
                found[lease.worker] = WorkerSummary(
                    lease.worker, lease.label, state, serves.queues if serves else (),
                    serves.workflows if serves else (), stored.updated,
                )  # fmt: skip
        return cls(found, await read_pauses(store))

    def status(
        self, workflow: str, queue: str, holder: str, *, label: str = "", pin: str = ""
    ) -> Status:
        """Of a run that has a marker with that holder, and may need a label or a version."""
        unserved = self.why_unserved(workflow, queue, label=label, pin=pin)
        if not holder:
            return Status("waiting", unserved)
        held_by = self.found.get(holder)
        if held_by is not None and held_by.state == "alive":
            return Status("running")
        died = f"its worker {held_by.label or holder} is gone" if held_by else "its worker is gone"
        return Status("waiting", f"{died}; {unserved or 'the next one to look takes it over'}")

    def why_unserved(self, workflow: str, queue: str, *, label: str = "", pin: str = "") -> str:
        """Why nobody takes it; empty if somebody will."""
        alive = [w for w in self.found.values() if w.state == "alive" and w.queues]
        if not alive:
            return "no live worker"
        here = [w for w in alive if queue in w.queues]
        if not here:
            return f"no live worker looks at queue {queue!r}"
        if not any(workflow in w.workflows for w in here):
            needs = f", or has the label {label!r} that it needs" if label else ""
            return f"no live worker knows workflow {workflow!r}{needs}"
        if pin and not any(names.of_version(workflow, pin) in w.workflows for w in here):
            return f"no live worker has version {pin!r} of workflow {workflow!r}, which it needs"
        if queue in self.pauses.queues:
            return f"queue {queue!r} is paused"
        return f"workflow {workflow!r} is paused" if workflow in self.pauses.workflows else ""
