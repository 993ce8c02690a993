"""All runs, without walking `runs/`: those that are not over, then the history of the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from urllib.parse import unquote

import msgspec

from durable.client.reading import Status, Workers, damage, in_line
from durable.protocol import names
from durable.protocol.records import Attention, History, Pending
from durable.runtime import markers, reading, slots, timers
from durable.runtime.branches import map_in
from durable.store import Store, Stored

H = TypeVar("H", Attention, History)

LOOKS_AT_ONCE = 16

_attention = msgspec.json.Decoder(Attention)
_history = msgspec.json.Decoder(History)


class RunSummary(msgspec.Struct, frozen=True):
    """One line of a list of runs.

    Attributes:
        started: for a run that is over; otherwise when its marker or attention hint was made,
            which for a fresh run is its start. Seconds since the epoch by the store's clock.
        ended: None while it is not over.
    """

    id: str
    workflow: str
    status: Status
    instance: str
    started: float
    ended: float | None = None
    tags: dict[str, str] = msgspec.field(default_factory=dict)


class RunList:
    """An asynchronous iterator of RunSummary. No generator: it may be left at any item.

    Each run is shown once: an outcome goes before a marker, a marker before an attention hint, that
    before a timer hint.
    """

    def __init__(
        self, store: Store, *, workflow: str | None, status: str | None, limit: int | None
    ) -> None:
        self._store = store
        self._workflow = workflow
        self._status = status
        self._left = limit
        self._shown: set[str] = set()
        self._left_behind: set[tuple[str, str]] = set()  # runs, instances: their holders are gone
        self._ready: Iterator[RunSummary] = iter(())
        self._stages = iter(self._plan())

    def __aiter__(self) -> RunList:
        return self

    async def __anext__(self) -> RunSummary:
        while self._left is None or self._left > 0:
            for summary in self._ready:
                if self._asked_for(summary):
                    self._left = None if self._left is None else self._left - 1
                    return summary
            stage = next(self._stages, None)
            if stage is None:
                break
            self._ready = iter(await stage())
        raise StopAsyncIteration

    def _asked_for(self, summary: RunSummary) -> bool:
        if summary.id in self._shown:
            return False
        self._shown.add(summary.id)
        return self._workflow in {None, summary.workflow} and self._status in {None, summary.status}

    # -- what is listed, in this order -------------------------------------------------------------

    def _plan(self) -> list[Callable[[], Awaitable[list[RunSummary]]]]:
        """Newest first, as far as that is cheap: only the last two days are listed alone."""
        today = datetime.fromtimestamp(self._store.now(), UTC).date()
        self._today, self._yesterday = str(today), str(today - timedelta(days=1))
        return [self._open_and_today, self._one_day, self._all_before]

    async def _open_and_today(self) -> list[RunSummary]:
        """Runs that are not over, unless they have just ended, then those that ended today."""
        in_line = await self._in_line()  # first: a run that gets its slot meanwhile is then live
        live = (
            await self._live()
        )  # before the rest: a run that ends meanwhile is then in the history
        flagged = await self._flagged()
        parked = await self._parked()
        today = await self._ended(f"history/{self._today}/")
        over = {(summary.id, summary.instance) for summary in today}
        waiting = _first_of_each(live, flagged, in_line, parked)
        waiting = [s for s in waiting if (s.id, s.instance) not in over]
        left = [key for s in waiting if (key := (s.id, s.instance)) in self._left_behind]
        over = await that_are_over(self._store, left)
        waiting = [s for s in waiting if (s.id, s.instance) not in over]
        waiting.sort(key=lambda s: s.started, reverse=True)
        return waiting + today

    async def _one_day(self) -> list[RunSummary]:
        return await self._ended(f"history/{self._yesterday}/")

    async def _all_before(self) -> list[RunSummary]:
        return await self._ended("history/", before=f"history/{self._yesterday}/")

    async def _live(self) -> list[RunSummary]:
        workers = await Workers.read(self._store)
        found = []
        async for stored in self._store.list(names.LIVE):
            queue, run = queue_of(stored.name), names.marker_run(stored.name)
            if run is None:
                continue
            workflow = stored.meta.get("workflow", "")
            status = damage(stored) or workers.status(
                workflow, queue, stored.meta.get("holder", ""),
                label=label_of(stored), pin=stored.meta.get("pin", ""),
            )  # fmt: skip
            instance = stored.meta.get("instance", "")
            if status == "waiting" and stored.meta.get("holder", ""):
                self._left_behind.add((run, instance))
            started = _seconds(stored.meta.get("created", "")) or stored.created
            found.append(RunSummary(run, workflow, status, instance, started))
        return found

    async def _in_line(self) -> list[RunSummary]:
        """Those that wait for a slot of a limited queue."""
        places = await places_in_line(self._store)
        if not places:
            return []
        workers = await Workers.read(self._store)
        return [
            RunSummary(
                place.pending.run, place.pending.workflow,
                in_line(place.queue, unserved(workers, place)),
                place.pending.instance, place.pending.created or place.stored.created,
            )
            for place in places
        ]  # fmt: skip

    async def _flagged(self) -> list[RunSummary]:
        found = []
        async for stored in self._store.list("attention/"):
            hint = await reading.record(self._store, stored, _attention)
            if hint is not None:
                status = Status("needs-attention", f"{hint.reason}: {hint.message}")
                found.append(
                    RunSummary(hint.run, hint.workflow, status, hint.instance, stored.created)
                )
        return found

    async def _parked(self) -> list[RunSummary]:
        """Each run once, by the hint that comes first."""
        found = []
        async for stored in self._store.list(names.TIMERS):
            hint = await timers.read(self._store, stored)
            if hint is not None:
                status = Status("parked", hint.waits_for)
                started = hint.created or stored.created
                found.append(RunSummary(hint.run, hint.workflow, status, hint.instance, started))
        return found

    async def _ended(self, prefix: str, *, before: str = "") -> list[RunSummary]:
        found = []
        async for stored in self._store.list(prefix):
            if before and stored.name >= before:
                break
            entry = await reading.record(self._store, stored, _history)
            if entry is not None:
                found.append(
                    RunSummary(
                        entry.run, entry.workflow, Status(entry.status, entry.why), entry.instance,
                        entry.started, entry.ended, entry.tags,
                    )
                )  # fmt: skip
        return found[::-1]


def _first_of_each(*listed: list[RunSummary]) -> list[RunSummary]:
    found: dict[str, RunSummary] = {}
    for summaries in listed:
        for summary in summaries:
            found.setdefault(summary.id, summary)
    return list(found.values())


async def that_are_over(store: Store, left: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Runs with their instances that have an outcome, of those whose holders are gone.

    A process may end before the delete of its marker is carried out.
    """

    async def look(one: tuple[str, str]) -> tuple[str, str] | None:
        return one if await store.read(names.result(*one)) is not None else None

    found = await map_in(None, look, left, LOOKS_AT_ONCE)
    return {one for one in found if one is not None}


def queue_of(marker: str) -> str:
    """The queue in a marker's name."""
    return unquote(marker.split("/", 2)[1])


class PlaceInLine(msgspec.Struct, frozen=True):
    """A run that waits for a slot of its queue, and the hint that says so."""

    queue: str
    pending: Pending
    stored: Stored


async def places_in_line(store: Store) -> list[PlaceInLine]:
    """Those of all queues."""
    found = []
    async for stored in store.list(names.QUEUES):
        queue = names.pending_queue(stored.name)
        full = None if queue is None else await reading.with_body(store, stored)
        pending = None if full is None else slots.decode_pending(full)
        if queue is not None and pending is not None:
            found.append(PlaceInLine(queue, pending, stored))
    return found


def unserved(workers: Workers, place: PlaceInLine) -> str:
    """Why no worker would take the run if it had a slot; empty if one would."""
    asked = place.pending.request
    return workers.why_unserved(
        place.pending.workflow, place.queue,
        label="" if asked is None else asked.label, pin="" if asked is None else asked.pin,
    )  # fmt: skip


def label_of(marker: Stored) -> str:
    """What a run needs of its worker, as far as the marker of a fresh run tells."""
    request = None if marker.body is None else markers.decode(marker)
    return "" if request is None or request.request is None else request.request.label


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
