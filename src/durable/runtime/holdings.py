"""What a worker holds: the runs it has taken, under one lease."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import anyio
import anyio.abc

from durable.errors import StoreError, StoreRefused
from durable.protocol import names, records
from durable.protocol.records import Marker, Start
from durable.runtime import markers, starting
from durable.runtime.closing import Stopped
from durable.runtime.custody import Custody, Why, Work
from durable.runtime.definitions import Workflows, serves
from durable.runtime.identity import Identity, Options
from durable.runtime.lines import Lines
from durable.runtime.markers import Held
from durable.runtime.reading import with_body
from durable.runtime.runner import Runner
from durable.runtime.solitude import Solitude
from durable.runtime.together import both
from durable.runtime.troubles import Troubles
from durable.store import Refused, Store, Stored, Written

log = logging.getLogger("durable")

UNWIND_TIMEOUT = 2.0  # seconds to give runs back after the grace
RELEASE_TIMEOUT = 4.0  # seconds; a bucket refuses a delete within one of the last renewal


class Holdings:
    """Takes runs and carries them, as many as there is room for.

    Args:
        on_change: called when a place became free or the lease was lost: look for work.
        on_parked: told of each run that was parked, with its queue and until when.
        on_left: called when the store would not have a run taken, carried on or cleaned up.
        lines: what is known of the queues.
        troubles: told of what the store would not do.

    Attributes:
        refusal: why the store would not have the lease renewed: nothing is taken any more.
    """

    def __init__(
        self,
        store: Store,
        workflows: Workflows,
        options: Options,
        *,
        tasks: anyio.abc.TaskGroup,
        on_change: Callable[[], None],
        on_parked: Callable[[str, str, float | None], None],
        on_left: Callable[[], None],
        lines: Lines,
        troubles: Troubles,
    ) -> None:
        self.runners: dict[str, Runner] = {}
        self.refusal: StoreRefused | None = None
        self.idle_since = store.system.boot()
        self._store = store
        self._system = store.system
        self._workflows = workflows
        self._options = options
        self._tasks = tasks
        self._on_change = on_change
        self._on_parked = on_parked
        self._on_left = on_left
        self._lines = lines
        self._troubles = troubles
        self._open = True
        self._solitude = Solitude()
        self._taking: set[str] = set()
        self._leaving: set[str] = set()
        self._backlog: list[Stored] = []
        self._changed: anyio.Event | None = None  # made by whoever waits for a change
        self._leasing = anyio.Lock(fast_acquire=True)
        self.identity = self._new_identity()

    def _new_identity(self) -> Identity:
        return Identity(
            self._store, self._options,
            tasks=self._tasks, on_lost=self._on_lost, describe_running=self._describe_running,
            observe=self._options.observe, recorded=self._solitude.end,
            crowded=lambda: not self.room, launch=self._launch,
        )  # fmt: skip

    def _describe_running(self) -> str:
        executions = [(run, r.execution) for run, r in list(self.runners.items()) if r.execution]
        paths = [f"{path} of run {run!r}" for run, e in executions for path in list(e.running)]
        return ", ".join(paths)

    def _on_lost(self, reason: str) -> None:
        if self.identity.over:
            return
        lost = self.identity
        self.refusal = lost.keeper.refusal
        if self.refusal is None:  # else whoever asked for the work raises it
            then = ": its runs go on elsewhere" if self.runners else ""
            log.warning("worker %s lost its lease (%s)%s", lost.id, reason, then)
        for runner in list(self.runners.values()):
            runner.stop(Stopped("lease"))
        lost.end()
        if self.refusal is not None:
            self.close()  # under a new id it would be refused again, and leave one more lease
        if self._open:
            self.identity = self._new_identity()
        self._on_change()

    # -- room -------------------------------------------------------------------------------------

    def serves(self, workflow: str, pin: str = "") -> bool:
        """Whether the code of this workflow is here, and of the version that the run needs."""
        return serves(self._workflows, workflow, pin)

    def has(self, run: str) -> bool:
        """Whether this run is carried here, or about to be."""
        return run in self.runners or run in self._taking or run in self._leaving

    @property
    def room(self) -> int:
        """How many more runs may be taken."""
        if not self._open or self._solitude.closed:
            return 0
        return max(0, self._options.concurrency - len(self.runners) - len(self._taking))

    def is_empty(self) -> bool:
        """Whether nothing is carried and nothing is about to be."""
        return not self.runners and not self._taking

    def _tell(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    # -- taking -----------------------------------------------------------------------------------

    async def take_all(self, unowned: list[Stored], of_the_dead: list[Stored]) -> list[Stored]:
        """Take what there is room for; the rest of the unowned is kept for the next free place.

        Returns:
            That rest.
        """
        room = self.room
        rest = self._backlog = unowned[room:]
        async with anyio.create_task_group() as tasks:
            for stored in unowned[:room]:
                tasks.start_soon(self._take_apart, stored)
            for stored in of_the_dead[: max(0, room - len(unowned))]:
                tasks.start_soon(self._take_apart, stored, "takeover")
        return rest

    @property
    def left_over(self) -> int:
        """How many unowned runs the last list showed that there was no room for."""
        return len(self._backlog)

    async def take(self, stored: Stored, why: Why | None = None) -> bool:
        """Try to become this marker's holder and carry its run; False: not taken."""
        return self._start(await self._take(stored, why))

    async def _take(self, stored: Stored, why: Why | None) -> Work | None:
        """As `take`; what carries the run is yet to be started."""
        run = names.marker_run(stored.name)
        if (
            run is None
            or self.has(run)
            or not self.room
            or not self.serves(stored.meta.get("workflow", ""), stored.meta.get("pin", ""))
        ):
            return None
        identity = await self._lease(run)
        try:
            full = await with_body(self._store, stored)
            if full is None or full.generation != stored.generation or not self._open:
                return None
            marker = markers.decode(full)
            if marker is None:
                return None
            held = await markers.take(
                self._store, full, marker,
                holder=identity.id, owner=self._system.token(), nonce=self._system.token(),
            )  # fmt: skip
            if held is None:
                return None
            return self._begin(identity, held, why or _why(marker))
        finally:
            self._taking.discard(run)
            self._tell()

    async def _try_to_take(self, stored: Stored, why: Why | None = None) -> Work | None:
        """As `_take`; a store that fails costs this run a look, and nobody anything else."""
        try:
            return await self._take(stored, why)
        except StoreError as e:
            self._left("could not take a run", e)
            return None

    async def _take_apart(self, stored: Stored, why: Why | None = None) -> None:
        self._start(await self._try_to_take(stored, why))

    async def start_here(self, run: str, start: Start) -> Written | Refused:
        """Start a run and hold it at once: marker and `start` are created side by side.

        Returns what became of `start`. If both are known ours at the first attempt the run is
        fresh, and nothing needs to be read.
        """
        identity = await self._lease(run)
        try:
            marker = markers.for_start(run, start, holder=identity.id, owner=self._system.token())
            name, body = names.start(run), records.encode(start)
            theirs, mine = await both(
                self._store.create(name, body, nonce=start.nonce),
                markers.create(self._store, marker),
            )
            if isinstance(mine, Written):
                fresh = mine.first and isinstance(theirs, Written) and theirs.first
                held = Held(marker, mine.generation, marker.nonce, fresh, first=True, clean=True)
                self._start(self._begin(identity, held, "wake"))
            return theirs
        finally:
            self._taking.discard(run)
            self._tell()

    async def _launch(self, store: Store, run: str, start: Start) -> Written | Refused:
        """Start a child's run: here, if this worker looks into no queue and must carry it."""
        if self._options.queues or not self.serves(start.workflow, start.pin):
            return await starting.start(store, run, start)
        if self.room:
            return await self.start_here(run, start)
        started = await starting.start(store, run, start)
        self._on_parked(run, start.queue, None)  # taken when there is a place
        return started

    async def _lease(self, run: str) -> Identity:
        """The lease is acknowledged before anything is taken under it."""
        # Before the first wait: while anything is being taken, `drain` keeps the lease.
        self._taking.add(run)
        try:
            async with self._leasing:
                # Closed: nothing is carried any more, so no lease is needed either.
                while self._open:
                    identity = self.identity
                    if await identity.keeper.acquire():
                        return identity
                    if identity is self.identity:  # the loss has not been reported yet
                        self._on_lost(identity.keeper.lost)
                return self.identity
        except BaseException:
            self._taking.discard(run)
            self._tell()
            raise

    def _begin(self, identity: Identity, held: Held, why: Why) -> Work:
        """From now on the run is held; what is returned carries it, and is to be started."""
        run = held.marker.run
        custody = Custody(
            around=identity.around, worker=identity.id,
            label=self._options.label, version=self._options.version, solitude=self._solitude,
            spawn=self._tasks.start_soon, held=held, why=why, lines=self._lines,
        )  # fmt: skip
        runner = Runner(custody, self._workflows)
        self.runners[run] = runner
        self._solitude.runs.add(run)
        if identity.over:
            runner.stop(Stopped("lease"))
        elif not self._open:
            runner.drain()
        return partial(self._carry, identity, runner)

    def _start(self, carry: Work | None) -> bool:
        if carry is not None:
            self._tasks.start_soon(carry)
        return carry is not None

    # -- carrying ---------------------------------------------------------------------------------

    async def _carry(self, identity: Identity, runner: Runner) -> None:
        await identity.leased(partial(self._carry_to_end, runner))
        over = runner.last is not None
        runner.over()
        self._tell()
        if over:
            self._on_change()  # a marker has gone: that may have been the last

    async def _carry_to_end(self, runner: Runner) -> None:
        try:
            await runner.carry()
        except StoreError as e:
            runner.fail(e)
        finally:
            if runner.refusal is not None and not runner.pursued:
                self._left(f"run {runner.run!r} stops here", runner.refusal)
            if self.runners.get(runner.run) is runner:
                del self.runners[runner.run]
            self._solitude.leave(runner.run)
            if runner.parked is not None:
                self._on_parked(runner.run, runner.held.marker.queue, runner.parked.due)
            self.idle_since = self._system.boot()
            runner.gone.set()
            self._tell()
            self._refill()
        if runner.last is not None:
            await self._leave(runner.run, runner.last)

    def _refill(self) -> None:
        """A place is free: take from what the last list left over, without another list."""
        if self._backlog and self.room:
            self._tasks.start_soon(self._take_next, self._backlog.pop(0))
        else:
            self._on_change()

    async def _take_next(self, stored: Stored) -> None:
        carry = await self._try_to_take(stored)
        if carry is None:
            self._refill()
        else:
            await carry()  # here: a task of its own has its price

    async def _leave(self, run: str, last: Work) -> None:
        """Delete the marker of a run that is over; until that is known, nobody takes it here."""
        self._leaving.add(run)
        try:
            await last()
        except StoreError as e:
            # Only clean-up is done this way; whoever lists the marker does it again.
            self._left("clean-up is left to the next list", e)
        finally:
            self._leaving.discard(run)

    def _left(self, what: str, error: StoreError) -> None:
        """A list that comes soon shows the run again; nothing else would before a slow one."""
        self._troubles.tell(what, error)
        self._on_left()

    # -- letting go -------------------------------------------------------------------------------

    async def learn_touched(self) -> None:
        """Somebody touched a marker of ours: find out which, and tell its runner."""
        for runner in list(self.runners.values()):
            stored = await self._store.read(runner.held.name)
            if stored is None:
                continue
            if markers.names_take(stored, runner.held):
                self.saw(runner.run, stored)
            else:
                log.warning("run %r was taken from this worker", runner.run)
                runner.stop(Stopped("taken"))

    def saw(self, run: str, stored: Stored) -> None:
        """A marker of ours as it was just read or listed; its runner learns of a change."""
        runner = self.runners.get(run)
        if runner is not None and markers.refresh(runner.held, stored):
            runner.touched()

    async def release_idle_lease(self) -> None:
        """Without runs no lease is needed; kept for a ttl, since a name is not rewritten often."""
        idle = self._system.boot() - self.idle_since
        if idle < self._options.terms.ttl or not self.is_empty():
            return
        async with self._leasing:
            if self.is_empty() and not self.identity.busy:
                await self.identity.keeper.release()

    def close(self) -> None:
        """Take nothing more."""
        self._open = False
        self._backlog.clear()

    async def drain(self) -> None:
        """Give back what is held: at once, or after the grace where a body is in flight."""
        self.close()
        for runner in list(self.runners.values()):
            runner.drain()
        with anyio.move_on_after(self._options.grace):
            await self._until(self.is_empty)
        for runner in list(self.runners.values()):
            runner.stop(Stopped("drain"))
        with anyio.move_on_after(UNWIND_TIMEOUT):
            await self._until(lambda: self.is_empty() and not self.identity.busy)
        with anyio.move_on_after(RELEASE_TIMEOUT):
            async with self._leasing:
                await self.identity.keeper.release()
        self.identity.end()

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._changed = self._changed or anyio.Event()
            await self._changed.wait()


def _why(marker: Marker) -> Why:
    return "wake" if marker.why == "start" else marker.why
