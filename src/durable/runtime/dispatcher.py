"""Giving slots to those that wait: done by one worker of each limited queue, to save lists.

Several dispatchers would be as right as one; see durable.protocol.queues. Who holds the lease
`leases/queue-<queue>` looks when the queue's bell rang, and once in a slow period. The lease is
renewed by looking and by nothing else, so it needs no task, and nobody relies on it. A run that
ends hands its slot on by itself. Who finds a ring and the lease in other hands looks once more
when that would have run out: its holder may have died before it looked.
"""

from __future__ import annotations

import msgspec

from durable import catalog
from durable.errors import UsageError
from durable.protocol import primitives, records
from durable.protocol.leases import TTL_DEFAULT, Terms, margin
from durable.protocol.primitives import LEASES, NOTHING, LeaseRecord
from durable.runtime.lines import Lines
from durable.store import Store, Stored, Written

LASTS = TTL_DEFAULT + margin(TTL_DEFAULT) + 0.1  # seconds; just after that it may be taken
TIDY_PERIOD = 60.0  # seconds between two looks for slots that nobody needs


class Dispatcher:
    """See the module's docstring.

    Args:
        lines: what is known of the queues.
        label: of the worker, for people.
    """

    def __init__(self, store: Store, lines: Lines, *, label: str) -> None:
        self._store = store
        self._lines = lines
        self._label = label
        self._holder = primitives.digest_of(store.system.token())
        self._renew_at: dict[str, float] = {}  # of the leases that are ours
        self._tidy_at: dict[str, float] = {}
        self._doubt_at: dict[str, float] = {}  # when the leases of others may have run out

    @property
    def own(self) -> list[str]:
        """The queues that this worker was the last to look after, as far as it knows."""
        return list(self._renew_at)

    @property
    def is_in_doubt(self) -> bool:
        """Whether somebody who was to look may have died instead: it is time to look again."""
        now = self._store.system.boot()
        return any(now >= at for at in self._doubt_at.values())

    async def look(self, queue: str, *, rung: bool) -> bool:
        """Dispatch, if this is ours to do; whether to look again soon, because of a rate.

        Args:
            rung: something may be there that nobody has looked at.
        """
        self._doubt_at.pop(queue, None)
        if queue not in self._lines.limited or not await self._is_ours(queue, rung=rung):
            return False
        slots = await self._lines.slots(queue, asked=False)
        if slots is None:
            return False
        now = self._store.system.boot()
        tidy = now >= self._tidy_at.get(queue, 0.0)
        if tidy:
            self._tidy_at[queue] = now + TIDY_PERIOD
        left = await slots.dispatch(tidy=tidy)
        return bool(left) and slots.settings.rate is not None

    async def is_anybody_waiting(self, queue: str) -> bool:
        """Whether a run waits for a slot that it may get."""
        if queue not in self._lines.limited:
            return False
        slots = await self._lines.slots(queue, asked=False)
        return slots is not None and not slots.paused and bool(await slots.waiting(1))

    async def _is_ours(self, queue: str, *, rung: bool) -> bool:
        now = self._store.system.boot()
        if now < self._renew_at.get(queue, 0.0):
            return True
        name = primitives.object_name(LEASES, f"queue-{queue}")
        stored = await self._store.read(name)
        try:
            record = self._next(queue, stored)
        except UsageError:  # a stranger's object: then everybody dispatches
            return True
        if record is None:
            self._renew_at.pop(queue, None)
            if rung and stored is not None:
                age = self._store.now() - stored.updated
                self._doubt_at[queue] = now + max(0.0, LASTS - age)
            return False
        body = records.encode(record)
        answer = await catalog.put(self._store, name, stored, body, nonce=record.nonce)
        if not isinstance(answer, Written):
            return False
        self._renew_at[queue] = now + TTL_DEFAULT / 3
        return True

    def _next(self, queue: str, stored: Stored | None) -> LeaseRecord | None:
        """The lease in our hands; None: somebody else has it."""
        there = None if stored is None else catalog.decode_record(LeaseRecord, stored)
        nonce, boot = self._store.system.token(), self._store.backend.boot
        if there is not None and there.holder == self._holder:
            return primitives.renewal(there, nonce=nonce, state=there.state, boot=boot)
        if there is not None and stored is not None:
            found = primitives.verdict(
                there, updated=stored.updated, now=self._store.now(), boot=boot
            )
            if there.holder and found == "alive":
                return None
        state = msgspec.Raw(NOTHING) if there is None else there.state
        return primitives.acquired(
            there, key=f"queue-{queue}", holder=self._holder, label=self._label,
            terms=Terms.of(TTL_DEFAULT), boot=boot, state=state, nonce=nonce,
        )  # fmt: skip

    async def close(self) -> None:
        """Let others dispatch at once."""
        for queue in list(self._renew_at):  # a look may be under way
            name = primitives.object_name(LEASES, f"queue-{queue}")
            stored = await self._store.read(name)
            if stored is None:
                continue
            there = catalog.decode_record(LeaseRecord, stored)
            if there.holder == self._holder:
                free = primitives.released(
                    there, nonce=self._store.system.token(), state=there.state
                )
                body = records.encode(free)
                await catalog.put(self._store, name, stored, body, nonce=free.nonce)
        self._renew_at.clear()
