"""What a worker knows of the limits of its queues, and of what is paused.

Both stand in the store, so that all workers and clients mean the same: the limits are written by
workers whose code has them, when they start; pauses by people. A worker reads them when it needs
to decide, and otherwise once in a slow period.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from durable import catalog
from durable.errors import UsageError
from durable.protocol import names, records
from durable.protocol.queues import Queue
from durable.protocol.records import Pauses, QueueRecord
from durable.runtime import reading
from durable.runtime.definitions import Workflows
from durable.runtime.slots import Slots
from durable.store import Store, Written

_settings = msgspec.json.Decoder(QueueRecord)
_pauses = msgspec.json.Decoder(Pauses)


async def read_settings(store: Store, queue: str) -> QueueRecord | None:
    """The limits of a queue; None: it has none."""
    stored = await store.read(names.queue_settings(queue))
    return None if stored is None else reading.decoded(stored, _settings)


async def declare(store: Store, queue: Queue) -> None:
    """Write the limits that the code gives the queue, unless they stand there.

    None are written for a queue that has none and never had any.
    """
    name = names.queue_settings(queue.name)
    while True:
        stored = await store.read(name)
        there = None if stored is None else reading.decoded(stored, _settings)
        asked = queue.record()
        if there is None and not queue.is_limited:
            return
        if there is not None and msgspec.structs.replace(there, nonce="") == asked:
            return
        asked.nonce = store.system.token()
        body = records.encode(asked)
        if isinstance(await catalog.put(store, name, stored, body, nonce=asked.nonce), Written):
            return


async def read_pauses(store: Store) -> Pauses:
    """What is paused."""
    stored = await store.read(names.PAUSES)
    found = None if stored is None else reading.decoded(stored, _pauses)
    return found or Pauses("")


async def pause(
    store: Store, *, queues: Iterable[str] = (), workflows: Iterable[str] = (), on: bool
) -> Pauses:
    """Pause, or go on with, queues and workflows; what is paused then."""
    while True:
        stored = await store.read(names.PAUSES)
        there = (None if stored is None else reading.decoded(stored, _pauses)) or Pauses("")
        change = set.union if on else set.difference
        after = Pauses(
            store.system.token(),
            queues=sorted(change(set(there.queues), set(queues))),
            workflows=sorted(change(set(there.workflows), set(workflows))),
        )
        body = records.encode(after)
        answer = await catalog.put(store, names.PAUSES, stored, body, nonce=after.nonce)
        if isinstance(answer, Written):
            return after


def limits_of(workflows: Workflows, names: Collection[str]) -> dict[str, Queue]:
    """What the code says of its queues.

    Args:
        names: of those that the worker looks at.

    Raises:
        UsageError: two workflows give one of these different limits.
    """
    found: dict[str, tuple[str, Queue]] = {}
    for workflow in workflows.values():
        queue = workflow.limits
        if queue is None:
            continue
        other, there = found.setdefault(queue.name, (workflow.name, queue))
        if queue.name in names and there.record() != queue.record():
            raise UsageError(
                f"workflow {other!r} is in {there}, and workflow {workflow.name!r} in {queue}: "
                "a queue has one set of limits",
                hint="make one Queue(...) and give it to both, or give one of them another name",
            )
    return {name: queue for name, (_, queue) in found.items()}


class Lines:
    """The queues of one worker, as last read.

    Args:
        queues: where the worker looks for runs.
        workflows: what it can run; some come with a limited queue.

    Raises:
        UsageError: two of them give one queue different limits.

    Attributes:
        limited: those that have limits.
        pauses: what is paused.
        known: whether it has learned that, and the limits, at least once.
    """

    def __init__(self, store: Store, queues: Iterable[str], workflows: Workflows) -> None:
        self.limited: dict[str, QueueRecord] = {}
        self.pauses = Pauses("")
        self.known = False
        self._store = store
        self._queues = tuple(queues)
        self._of_code = limits_of(workflows, self._queues)
        self._declared = False

    async def learn(self) -> None:
        """Read what may have changed; the first time, write what the code says."""
        if not self._declared:
            for name, queue in self._of_code.items():
                if name in self._queues:
                    await declare(self._store, queue)
            self._declared = True
        self.pauses = await read_pauses(self._store)
        for name in self._queues:
            await self._learn(name)
        self.known = True

    async def _learn(self, queue: str) -> QueueRecord | None:
        found = await read_settings(self._store, queue)
        of_code = self._of_code.get(queue) if found is None else None
        if of_code is not None and of_code.is_limited:
            await declare(self._store, of_code)
            found = await read_settings(self._store, queue)
        if found is None:
            self.limited.pop(queue, None)
        else:
            self.limited[queue] = found
        return found

    async def slots(self, queue: str, *, asked: bool) -> Slots | None:
        """The slots of the queue under its present limits; None: it has none.

        Args:
            asked: whoever started the run knew of limits, even if we do not.
        """
        if not asked and queue not in self.limited:
            return None
        settings = await self._learn(queue)
        if settings is None or not (settings.concurrency or settings.rate):
            return None
        self.pauses = await read_pauses(self._store)
        return Slots(self._store, settings, paused=queue in self.pauses.queues)

    def is_paused(self, queue: str, workflow: str) -> bool:
        """Whether no such run is to be taken."""
        return queue in self.pauses.queues or workflow in self.pauses.workflows
