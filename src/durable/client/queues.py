"""The client's words for queues: how long they are, who holds their slots, pauses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec

from durable.errors import UsageError
from durable.protocol import names
from durable.protocol.names import check_id
from durable.protocol.records import Pauses, QueueRecord
from durable.runtime import lines, reading, slots
from durable.runtime.slots import Slots
from durable.runtime.starting import announce
from durable.store import Store


class QueueSummary(msgspec.Struct, frozen=True):
    """A queue as it stands. Times are seconds since the epoch, UTC.

    Attributes:
        name: where workers look.
        concurrency: how many of its runs go on at once; None: no limit.
        rate: at most so many starts in so many seconds; None: no limit.
        paused: no run of it is started.
        depth: how many runs wait, for a slot or for a worker.
        running: how many have a worker.
        holders: the ids of the runs that hold its slots.
        oldest: when the run that waits longest was started; None: nobody waits.
    """

    name: str
    concurrency: int | None
    rate: tuple[int, float] | None
    paused: bool
    depth: int
    running: int
    holders: tuple[str, ...]
    oldest: float | None


class Queues:
    """All queues of a store that have runs or limits, or are paused."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self) -> QueueList:
        """All queues by name; to be iterated with `async for`."""
        return QueueList(self._store)

    async def paused_workflows(self) -> tuple[str, ...]:
        """The workflows of which no further run is started, in whatever queue."""
        return tuple((await lines.read_pauses(self._store)).workflows)

    async def pause(self, *, queue: str | None = None, workflow: str | None = None) -> None:
        """Start no further run of a queue, or of a workflow in whatever queue.

        What goes on goes on. Every worker knows within a minute.

        Raises:
            UsageError: neither is named.
        """
        await self._set(queue, workflow, on=True)

    async def resume(self, *, queue: str | None = None, workflow: str | None = None) -> None:
        """Go on.

        Raises:
            UsageError: neither is named.
        """
        await self._set(queue, workflow, on=False)

    async def _set(self, queue: str | None, workflow: str | None, *, on: bool) -> None:
        if queue is None and workflow is None:
            raise UsageError("name the queue or the workflow that is meant")
        queues = [check_id(queue, what="queue") and queue] if queue is not None else []
        workflows = [workflow] if workflow is not None else []
        await lines.pause(self._store, queues=queues, workflows=workflows, on=on)
        if queue is not None and not on:
            await announce(self._store, names.queue_bell(queue))


@dataclass
class _Count:
    depth: int = 0
    running: int = 0
    waiting: list[float] = field(default_factory=list)

    def waits(self, since: float) -> None:
        self.depth += 1
        self.waiting.append(since)


class QueueList:
    """An asynchronous iterator of QueueSummary. No generator: it may be left at any item."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ready: Iterator[QueueSummary] | None = None

    def __aiter__(self) -> QueueList:
        return self

    async def __anext__(self) -> QueueSummary:
        if self._ready is None:
            self._ready = iter(await self._read())
        for summary in self._ready:
            return summary
        raise StopAsyncIteration

    async def _read(self) -> list[QueueSummary]:
        """Three lists, and one of slots for each limited queue."""
        pauses = await lines.read_pauses(self._store)
        counts: dict[str, _Count] = {queue: _Count() for queue in pauses.queues}
        limited = await self._in_line(counts)
        async for stored in self._store.list(names.LIVE):
            count = counts.setdefault(unquote(stored.name.split("/")[1]), _Count())
            if stored.meta.get("holder"):
                count.running += 1
            else:
                count.waits(_seconds(stored.meta.get("created", "")) or stored.created)
        return [await self._summary(q, counts[q], limited, pauses) for q in sorted(counts)]

    async def _in_line(self, counts: dict[str, _Count]) -> dict[str, QueueRecord]:
        limited: dict[str, QueueRecord] = {}
        async for stored in self._store.list(names.QUEUES):
            queue = unquote(stored.name.split("/")[1])
            count = counts.setdefault(queue, _Count())
            if stored.name == names.queue_settings(queue):
                settings = await lines.read_settings(self._store, queue)
                if settings is not None:
                    limited[queue] = settings
            elif names.pending_queue(stored.name) is not None:
                full = await reading.with_body(self._store, stored)
                pending = None if full is None else slots.decode_pending(full)
                if pending is not None:
                    count.waits(pending.created or stored.created)
        return limited

    async def _summary(
        self, queue: str, count: _Count, limited: dict[str, QueueRecord], pauses: Pauses
    ) -> QueueSummary:
        settings = limited.get(queue)
        holders: tuple[str, ...] = ()
        if settings is not None:
            listed = await Slots(self._store, settings).all()
            holders = tuple(listed.slots[i].run for i in sorted(listed.slots))
        rate = settings.rate if settings is not None else None
        return QueueSummary(
            name=queue, concurrency=settings.concurrency if settings is not None else None,
            rate=(int(rate[0]), rate[1]) if rate else None, paused=queue in pauses.queues,
            depth=count.depth, running=count.running, holders=holders,
            oldest=min(count.waiting, default=None),
        )  # fmt: skip


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
