"""What lives in a test environment's event loop: a bucket, a worker that may die, a client."""

from __future__ import annotations

import contextlib
import random  # noqa: TID251  # a seed repeats it, which is the point
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import anyio
import anyio.abc

from durable.protocol import durations
from durable.runtime.identity import Options
from durable.runtime.surroundings import Progress
from durable.store import Store
from durable.store.memory import Bucket, Verb
from durable.system import System
from durable.testing.alarm import Alarm
from durable.testing.client import TestClient
from durable.testing.clock import VirtualClock
from durable.testing.describing import why_stuck
from durable.testing.faults import Faults
from durable.testing.processes import TERMS, Process, ProcessBackend, Registered
from durable.testing.stubs import Stubs

# What a run's outcome, its parking and its need of a human show themselves by.
_TELLING = ("attention/", "live/", "timers/")


class World:
    """See the module's docstring.

    Args:
        clock: the event loop's.
        seed: of every random choice that durable makes.
        start: the wall time at the clock's zero.
        schedules: whether runs are started by schedules.

    Attributes:
        body_runs: how often the body of each call began, by run and path.
    """

    def __init__(
        self, clock: VirtualClock, *, seed: int, start: datetime, schedules: bool = False
    ) -> None:
        self._schedules = schedules
        self.clock = clock
        self.faults = Faults()
        self.stubs = Stubs()
        self.body_runs: Counter[tuple[str, str]] = Counter()
        self.seed = seed
        self._start = start.timestamp()
        self._systems = 0
        self.bucket = Bucket(now=self._wall)
        self.client: TestClient
        self._process: Process
        self._tasks: anyio.abc.TaskGroup
        self._news = anyio.Event()
        clock.explain = lambda: why_stuck(self.bucket, self._process.in_flight)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Alive as long as the block lasts."""
        async with anyio.create_task_group() as self._tasks:
            await self._begin_process()
            store = Store(ProcessBackend(self.bucket, changed=self._changed), system=self._system())
            self._tasks.start_soon(Alarm(self.bucket, store, self._told).ring)
            async with TestClient(store, self._told) as self.client:
                yield
            self._process.stop()
            await self._process.gone.wait()
            self._tasks.cancel_scope.cancel()

    # -- what tests ask for -----------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The store's present time."""
        return datetime.fromtimestamp(self._wall(), UTC)

    @property
    def in_flight(self) -> bool:
        """Whether a body of a step is in flight."""
        return bool(self._process.in_flight)

    async def advance(self, by: float | str | timedelta) -> None:
        """Let that much time pass, and everything that is due by then be done."""
        seconds = durations.seconds(by)
        await anyio.sleep(seconds)
        await self.clock.quiet()

    async def settle(self) -> None:
        """Let everything be done that can be done without time passing."""
        await self.clock.quiet()

    async def crash_worker(self) -> None:
        """Kill the worker as it stands, and begin another."""
        self._process.kill()  # what is left of it unwinds meanwhile
        await self._begin_process()

    # -- inside -----------------------------------------------------------------------------------

    async def _begin_process(self) -> None:
        options = Options(
            grace=0, renew_in_thread=False, polls=False, schedules=self._schedules,
            terms=TERMS, label="test", observe=self._observe, body_of=self.stubs.body_of,
            watch=True,
        )  # fmt: skip
        self._process = Process(self._make_backend(), self._system(), Registered(), options)
        await self._tasks.start(self._process.live)

    def _make_backend(self) -> ProcessBackend:
        return ProcessBackend(self.bucket, faults=self.faults, changed=self._changed)

    def _system(self) -> System:
        self._systems += 1
        chance = random.Random(f"{self.seed} {self._systems}")  # noqa: S311  # not for secrets
        return System(
            boot=self.clock.now,
            wall=self._wall,
            token=lambda: f"{chance.getrandbits(96):024x}",
            uniform=chance.uniform,
        )

    def _wall(self) -> float:
        return self._start + self.clock.now()

    def _observe(self, run: str, progress: Progress) -> None:
        self.clock.progress()
        if progress.kind == "begin":
            self.body_runs[run, progress.path] += 1

    def _changed(self, verb: Verb, name: str) -> None:
        self.clock.progress()
        self._process.hear(verb, name)
        if name.startswith(_TELLING) or name.endswith("/result"):
            self._news.set()
            self._news = anyio.Event()

    def _told(self) -> anyio.Event:
        """Set when a run may have ended, parked, or stopped for a human after this moment."""
        return self._news
