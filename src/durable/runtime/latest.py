"""Objects that one owner overwrites: the newest value wins, at most one write a second.

Each epoch has objects of its own, so nobody else writes them and readers take the highest epoch.
A write of ours whose answer nobody waited for may have landed: then the next one is refused, and
goes on from what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import msgspec

from durable.errors import StoreError
from durable.protocol import records
from durable.runtime.closing import Stopped
from durable.runtime.gate import Gate
from durable.runtime.grouping import Groups
from durable.runtime.inflight import InFlight
from durable.runtime.news import News
from durable.runtime.surroundings import Surroundings
from durable.runtime.turns import in_task
from durable.runtime.turnstile import Turnstile
from durable.store import Written

PERIOD = 1.0  # seconds between two writes of one object: a bucket takes no more

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
Make = Callable[[msgspec.Raw, str, float], msgspec.Struct]


class Latest:
    """One such object.

    Args:
        name: of the object.
        make: its record from a value, a nonce and the store's time.
        keeper: writes it.

    Attributes:
        value: the newest; None: there was none yet.
        pending: it is not known to be in the store.
    """

    def __init__(self, around: Surroundings, name: str, make: Make, keeper: Keeper) -> None:
        self.value: msgspec.Raw | None = None
        self.pending = False
        self._around = around
        self._name = name
        self._make = make
        self._keeper = keeper
        self._generation = 0

    def put(self, value: msgspec.Raw) -> None:
        """Have it written soon, unless a newer one comes first. In the event loop."""
        self.value = value
        self.pending = True
        self._keeper.wants(self)

    def drop(self) -> None:
        """What is not written yet need not be."""
        self.pending = False

    async def write(self) -> None:
        """Write the newest value, if it is pending.

        The store holds the write back while the lease is in doubt; whoever loses it is cancelled.

        Raises:
            StoreError: the store refuses it for good.
        """
        around, value = self._around, self.value
        if value is None:
            return
        if not await self._keeper.ahead():
            return
        nonce = around.system.token()
        body = records.encode(self._make(value, nonce, around.store.now()))
        while self.pending:
            if self._generation:
                written = await around.store.replace(
                    self._name, self._generation, body, nonce=nonce
                )
            else:
                written = await around.store.create(self._name, body, nonce=nonce)
            if isinstance(written, Written):
                self._generation = written.generation
                self.pending = self.value is not value
                return
            self._generation = written.current.generation if written.current is not None else 0


class Keeper:
    """Writes the objects of one execution.

    Args:
        spawn: starts a task of the run's own.
    """

    def __init__(
        self,
        *,
        turnstile: Turnstile,
        in_flight: InFlight,
        groups: Groups,
        gate: Gate,
        spawn: Spawn,
    ) -> None:
        self._turnstile = turnstile
        self._in_flight = in_flight
        self._groups = groups
        self._gate = gate
        self._spawn = spawn
        self._started = False
        self._wanted: list[Latest] = []
        self._kept: set[Latest] = set()
        self._news = News()

    async def ahead(self) -> bool:
        """Wait until what a value may follow from is recorded; False if it will not be."""
        return await self._groups.recorded()

    def _ready(self) -> bool:
        """Whether anything may be written yet."""
        return not self._turnstile.replaying or bool(self._in_flight.paths)

    def start(self) -> None:
        """Be ready for what threads want: no task can be started from a bare callback of theirs."""
        if not self._started:
            self._started = True
            self._spawn(self._keep)

    def wants(self, latest: Latest) -> None:
        """It has a new value."""
        if latest not in self._kept:
            self._kept.add(latest)
            self._wanted.append(latest)
            self._news.tell()
        if in_task():
            self.start()

    async def _keep(self) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                await self._news.wait()
                while self._wanted:
                    tasks.start_soon(self._keep_up, self._wanted.pop())

    async def _keep_up(self, latest: Latest) -> None:
        while latest.pending:
            if self._ready():
                try:
                    await latest.write()
                except StoreError as e:
                    self._gate.close(Stopped("store", error=e))
            await anyio.sleep(PERIOD)
        self._kept.discard(latest)
