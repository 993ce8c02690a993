"""Showing a worker to the others, and knowing its place among them.

Workers that look into a queue for the same work list a part of it each, so that together they
list it once. A part follows from the presence of the others as it was last read, which is never
judged as a lease: two workers may see different others, so no run's fate depends on the split.
"""

from __future__ import annotations

import contextlib
import math

import anyio
import msgspec

from durable.errors import StoreError
from durable.protocol import names, records
from durable.protocol.records import Presence
from durable.runtime.definitions import Workflows, shown
from durable.runtime.holdings import Holdings
from durable.runtime.identity import Options
from durable.runtime.reading import record
from durable.store import EVERYTHING, Store, Within, Written

SHOWN_PERIOD = 60.0  # seconds between two showings, and between two looks at the others
COUNTED = 180.0  # seconds for which a worker is counted after it has shown itself
# Seconds: a bucket refuses a delete within one of the last showing. What is not deleted is passed
# over soon, and tidied up later.
HIDE_TIMEOUT = 4.0

_decoder = msgspec.json.Decoder(Presence)


class Peers:
    """The workers that look for what this one looks for, and this one among them."""

    def __init__(
        self, store: Store, holdings: Holdings, options: Options, workflows: Workflows
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._options = options
        self._workflows = workflows
        self._showing = anyio.Lock()  # whoever hides knows whether there is anything to hide
        self._shown = 0  # generation of our presence object
        self._shown_as = ""  # a worker that was fenced goes on under another id
        self._others: list[Presence] = []
        self._read_at = -math.inf

    async def show(self) -> None:
        """Write what this worker serves, and whether it has room."""
        token, worker = self._store.system.token(), self._holdings.identity.id
        presence = Presence(
            worker=worker, nonce=token, label=self._options.label,
            queues=list(self._options.queues), workflows=shown(self._workflows),
            runs=len(self._holdings.runners), full=not self._holdings.room,
        )  # fmt: skip
        name, body = names.presence(worker), records.encode(presence)
        async with self._showing:
            if self._shown_as != worker:
                with anyio.move_on_after(HIDE_TIMEOUT):
                    await self._remove()
                self._shown, self._shown_as = 0, worker
            if self._shown:
                written = await self._store.replace(name, self._shown, body, nonce=token)
            else:
                written = await self._store.create(name, body, nonce=token)
            self._shown = written.generation if isinstance(written, Written) else 0

    async def hide(self) -> None:
        """This worker ends. Not worth an error: what is not renewed is not counted any more."""
        with anyio.move_on_after(HIDE_TIMEOUT):
            async with self._showing:
                await self._remove()

    async def _remove(self) -> None:
        if self._shown:
            with contextlib.suppress(StoreError):
                await self._store.delete(names.presence(self._shown_as), self._shown)

    async def part(self, queue: str) -> Within:
        """The part of the queue's markers that falls to this worker."""
        if self._store.system.boot() >= self._read_at + SHOWN_PERIOD:
            await self._read()
        own = self._holdings.identity.id
        ids = sorted({own, *(other.worker for other in self._others if queue in other.queues)})
        if len(ids) == 1:
            return EVERYTHING
        return Within(*names.markers_between(queue, ids.index(own), len(ids)))

    async def _read(self) -> None:
        """Those with room that serve whatever we serve: between them nothing is left out."""
        served = set(shown(self._workflows))
        others = []
        async for stored in self._store.list(names.PRESENCE):
            if self._store.now() - stored.updated > COUNTED:
                continue
            other = await record(self._store, stored, _decoder)  # many workflows make it large
            if other is not None and not other.full and served <= set(other.workflows):
                others.append(other)
        self._others = others
        self._read_at = self._store.system.boot()
