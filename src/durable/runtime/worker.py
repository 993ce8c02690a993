"""A worker: finds runs that need one, carries them, and takes over from the dead.

One lease stands for every run it holds. Losing it is a cancel scope: all its runs unwind at
once, nothing is recorded, and the worker goes on under a new random id.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from durable.errors import StoreError, StoreRefused, StoreUnavailable
from durable.protocol.records import Start
from durable.runtime import markers, watching
from durable.runtime.definitions import Workflows
from durable.runtime.dispatcher import Dispatcher
from durable.runtime.finder import Finder
from durable.runtime.holdings import Holdings
from durable.runtime.identity import Options
from durable.runtime.lines import Lines
from durable.runtime.neighbours import Neighbours
from durable.runtime.peers import SHOWN_PERIOD, Peers
from durable.runtime.promoter import Promoter
from durable.runtime.rounds import Periods, Rounds
from durable.runtime.runner import Runner
from durable.runtime.scheduler import Scheduler
from durable.runtime.sweeper import Sweeper
from durable.runtime.troubles import Troubles
from durable.store import Refused, Store, Written

TIDY_PERIOD = 600.0  # seconds
RELEASE_TIMEOUT = 1.0  # seconds, for leases that run out by themselves
PROBE_PERIOD = 1.0  # seconds between looks at lock files of workers on this host


class Worker:
    """See the module's docstring.

    Args:
        store: where the runs are. Its patience bounds what is done without holding a run.
        workflows: what it can run, by name.

    Attributes:
        drained: set when everything is given back. `run` returns then, unless code of a run
            swallows every cancellation: such a task cannot be ended, only its process.
    """

    def __init__(self, store: Store, workflows: Workflows, options: Options | None = None) -> None:
        self.store = store
        self.workflows = workflows
        self.options = options or Options()
        self.drained = anyio.Event()
        self._stopping = anyio.Event()
        self._beginning: anyio.CancelScope | None = None
        self._nudges: dict[Callable[..., Awaitable[None]], anyio.Event] = {}
        self._until_idle = False
        self._blind: StoreRefused | None = None  # why it may not look for work
        self._scheduler = Scheduler(
            store, workflows, version=self.options.version, on_start=self.nudge,
            polls=self.options.polls,
        )  # fmt: skip
        self._lines = Lines(store, self.options.queues, workflows)
        self._troubles = Troubles(store.system)
        self._sweeper = Sweeper(store=store, runtime_folder=self.options.runtime_folder)
        self._holdings: Holdings
        self._finder: Finder
        self._promoter: Promoter
        self._neighbours: Neighbours
        self._rounds: Rounds
        self._follows = False
        self._parked: dict[str, str] = {}  # runs parked here and their queues, if they are followed

    @property
    def id(self) -> str:
        """The random id it works under at present."""
        return self._holdings.identity.id

    @property
    def runners(self) -> dict[str, Runner]:
        """The runs it carries, by id."""
        return self._holdings.runners

    @property
    def refusal(self) -> StoreRefused | None:
        """Why it has stopped by itself: the store refused its lease, or to show it any work."""
        return self._blind or self._holdings.refusal

    # -- life -------------------------------------------------------------------------------------

    async def run(
        self,
        *,
        until_idle: bool = False,
        polling: bool = True,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Work until `stop()`, or until nothing is left to do.

        Args:
            until_idle: return when no run of its queues needs a worker any more.
            polling: False only carries what it is handed by `start_here` and `pursue`.

        Raises:
            StoreRefused: runs cannot live in this store, whose settings keep what is there.
            StoreUnavailable: the store does not answer at the start.
        """
        with anyio.CancelScope() as self._beginning:
            await self.store.check()
        if self._stopping.is_set():  # before it began
            task_status.started()
            self.drained.set()
            return
        if self.options.watch:
            watching.begin()
        self._until_idle = until_idle
        async with anyio.create_task_group() as tasks:
            self._holdings = Holdings(
                self.store, self.workflows, self.options, tasks=tasks, on_change=self._on_change,
                on_parked=self._on_parked, on_left=self._on_left,
                lines=self._lines, troubles=self._troubles,
            )  # fmt: skip
            dispatcher = Dispatcher(self.store, self._lines, label=self.options.label)
            self._promoter = Promoter(self.store)
            peers = Peers(self.store, self._holdings, self.options, self.workflows)
            periods = Periods.of(self.store.pace, self.options.terms)
            self._finder = Finder(
                self.store, self._sweeper, self._holdings, peers, self.options,
                dispatcher=dispatcher, lines=self._lines, period=periods.queues,
            )  # fmt: skip
            self._finder.until_idle = until_idle
            # What is asked again at once when there is news.
            self._nudges = {
                self._poll: anyio.Event(),
                self._finder.answer_own_bell: anyio.Event(),
            }
            self._neighbours = Neighbours(
                self.store, self._sweeper, own_id=lambda: self.id, named=lambda: self._finder.named
            )
            self._rounds = Rounds(
                self.store, periods.round, promoter=self._promoter, neighbours=self._neighbours,
                listed_at=lambda: self._finder.listed_at,
            )  # fmt: skip
            self._follows = not polling
            tasks.start_soon(self._repeat, self.store.pace.bell, self._promote)
            if polling:
                tasks.start_soon(self._repeat, self.store.pace.slow, self._learn_anew)
                tasks.start_soon(self._repeat, self.store.pace.bell, self._poll)
                tasks.start_soon(self._repeat, SHOWN_PERIOD, peers.show)
                tasks.start_soon(self._repeat, PROBE_PERIOD, self._watch)
                tasks.start_soon(self._repeat, TIDY_PERIOD, self._sweeper.tidy_hints)
                if self.options.schedules:
                    tasks.start_soon(self._repeat, self.store.pace.bell, self._scheduler.look)
            tasks.start_soon(self._repeat, PROBE_PERIOD, self._holdings.release_idle_lease)
            tasks.start_soon(self._repeat, self.store.pace.bell, self._finder.answer_own_bell)
            task_status.started()
            try:
                await self._stopping.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._holdings.drain()
                    # What cannot be given back now runs out.
                    with anyio.move_on_after(RELEASE_TIMEOUT), contextlib.suppress(StoreError):
                        await dispatcher.close()
                    await peers.hide()
                    self.drained.set()
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Drain: take nothing more, give back what is held, then return from `run`.

        A worker that has not begun, since the store does not answer, does not begin.
        """
        self._stopping.set()
        if self._nudges:
            self._holdings.close()
        elif self._beginning is not None:
            self._beginning.cancel()

    def nudge(self) -> None:
        """Look for work now. A worker that has not begun looks for everything when it does."""
        if not self._nudges:
            return
        self._finder.hurry()
        for nudge in self._nudges.values():
            nudge.set()
        if not self.options.polls:
            self._scheduler.hurry()

    def _on_change(self) -> None:
        if self.refusal is not None:
            self.stop()
        # While something is left over from the last list, free places are filled from that.
        if self._until_idle and self._holdings.is_empty() and not self._holdings.left_over:
            self.nudge()

    async def _repeat(
        self, pause: float, work: Callable[..., Awaitable[None]], *args: object
    ) -> None:
        """Do it for ever; a store that fails is asked again, one warning for each outage."""
        failing: float | None = None  # since when
        while True:
            try:
                await work(*args)
                if failing is not None:
                    self._troubles.over()
                failing = None
            except StoreError as e:
                now = self.store.system.boot()
                failing = now if failing is None else failing
                self._tell(e, now - failing)
                lasts = now - failing > self.options.terms.ttl
                if work == self._poll and lasts and isinstance(e, StoreRefused):
                    self._blind = e  # as long as a refused lease is given
                    self.stop()
            jittered = pause * self.store.system.uniform(0.8, 1.2)
            # The scheduler rests until something is due by itself.
            soon = self.options.polls or failing is not None or work == self._scheduler.look
            if work in self._nudges:
                with anyio.move_on_after(jittered if soon else math.inf):
                    await self._nudges[work].wait()
                    self._nudges[work] = anyio.Event()
            elif soon:
                await anyio.sleep(jittered)
            else:
                await anyio.sleep_forever()

    def _tell(self, error: StoreError, lasted: float) -> None:
        """Say that a loop fails, unless a run is about to raise the same where it is waited for.

        A store that refuses everything stops every run within a ttl, with the lease at the latest.
        """
        if isinstance(error, StoreUnavailable):
            self._troubles.tell("the store does not answer", error)
        elif not self._follows or lasted > self.options.terms.ttl:
            self._troubles.tell("the store refuses", error)

    # -- what is repeated -------------------------------------------------------------------------

    def _on_left(self) -> None:
        self._finder.look_again()

    def _on_parked(self, run: str, queue: str, due: float | None) -> None:
        if due is not None:
            self._promoter.expect(due)
        if self._follows:
            self._parked[run] = queue

    async def _promote(self) -> None:
        if await self._promoter.look():
            self.nudge()
        for run, queue in list(self._parked.items()):
            await self._follow(run, queue)

    async def _follow(self, run: str, queue: str) -> None:
        """A worker that looks into no queue takes back what it has parked, once it is woken."""
        found = await markers.read(self.store, queue, run)
        if found is None:
            return
        if found[1].holder or await self._holdings.take(found[0]):
            self._parked.pop(run, None)

    async def _learn_anew(self) -> None:
        if self._lines.known:
            await self._lines.learn()

    async def _poll(self) -> None:
        if not self._lines.known:
            await self._lines.learn()  # before anything is taken
        if self._until_idle:
            await self._rounds.look()
            await self._promoter.look()  # what is due now is not parked for long
        await self._finder.look()
        settled = self._scheduler.settled or not self.options.schedules
        if not (self._until_idle and settled):
            return
        if self._finder.idle and self._holdings.is_empty():
            self.stop()

    async def _watch(self) -> None:
        await self._rounds.look()
        if await self._neighbours.look():
            self.nudge()

    # -- one run, here ----------------------------------------------------------------------------

    async def start_here(self, run: str, start: Start) -> Written | Refused:
        """Start a run and hold it at once; what became of its `start` object."""
        return await self._holdings.start_here(run, start)

    async def pursue(self, queue: str, run: str) -> bool:
        """Carry the run here unless somebody alive does; True when it came to a stop here.

        Raises:
            StoreError: the store refused what the run had to record.
        """
        if not self._holdings.has(run):
            found = await markers.read(self.store, queue, run)
            if found is None:
                return False
            stored, marker = found
            foreign = marker.holder not in {"", self.id}
            if foreign and not await self._sweeper.takeable(marker.holder):
                return False
            if not await self._holdings.take(stored, "takeover" if foreign else None):
                return False
        runner = self.runners.get(run)
        if runner is None:
            return True
        runner.pursued = True
        await runner.gone.wait()
        if runner.refusal is not None:
            raise runner.refusal
        return True
