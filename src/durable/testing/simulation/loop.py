"""One event loop for many machines: virtual time, one seed, nothing left to chance.

Each machine's code runs in threads of its own (`Strand`), each with its own queue of callbacks,
in the order in which asyncio would run them; which strand goes next is drawn from the seed. A
strand can be stopped for a while (SIGSTOP, a suspended machine, a blocked loop) or for good
(kill -9): its callbacks then wait, or are dropped, and nobody else notices. Time moves only when
no strand can run, straight to the next timer, and a little with every turn, so that a strand
that spins does not stop it.

A strand's `loop.time()` is its machine's monotonic clock: it has an offset and a rate of its own,
and stands still while the machine is suspended.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  # this is an event loop of asyncio's
import contextlib
import contextvars
import heapq
import random  # noqa: TID251  # one seed for everything is the point
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from typing import Any, TypeVar, TypeVarTuple, Unpack

from durable.testing.simulation.isolation import known

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TURN_SECONDS = 10e-6  # of virtual time that a turn of a strand takes
SPIN_TURNS = 100  # in a row without a timer; each of the next ones takes
SPIN_SECONDS = 5e-3
TURNS_MAX = 400_000  # of one simulation; more means that something spins for ever
SUSPENDED_LOOK = 0.1  # seconds between looks whether a timer of a suspended machine is due
_SLACK = 1e-9  # seconds; a timer never fires before its time because of rounding


class Stuck(AssertionError):
    """Nothing will ever happen any more, or something happens for ever."""


class Clock:
    """A machine's monotonic clock: `rate` times true time, but for the time it was suspended."""

    def __init__(self, offset: float = 0.0, rate: float = 1.0) -> None:
        self.offset = offset
        self.rate = rate
        self._suspended = 0.0  # seconds of true time, in all
        self._since: float | None = None

    def local(self, true: float) -> float:
        if self._since is not None:
            true = self._since
        return self.offset + self.rate * (true - self._suspended)

    def true(self, local: float) -> float:
        return (local - self.offset) / self.rate + self._suspended + _SLACK

    def suspend(self, true: float) -> None:
        self._since = true

    def resume(self, true: float) -> None:
        if self._since is not None:
            self._suspended += true - self._since
            self._since = None


strand: contextvars.ContextVar[Strand] = contextvars.ContextVar("durable.simulation.strand")


class Strand:
    """What one thread of one machine still has to run."""

    def __init__(self, name: str, clock: Clock, loop: SimulatedLoop) -> None:
        self.name = name
        self.clock = clock
        self.loop = loop
        self.ready: deque[Callback] = deque()
        self.stopped = False
        self.dead = False
        self.queued = False  # whether the loop knows that it can run
        self.context = contextvars.Context()  # of what is run here from outside
        self.context.run(strand.set, self)


class Callback(asyncio.TimerHandle):
    """What is to be called; asyncio's own asks its loop each time whether that debugs."""

    __slots__ = ("args", "call", "context")

    def __init__(
        self,
        call: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        when: float = 0.0,
    ) -> None:
        self.call, self.args, self.context = call, args, context
        self._when = when
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<{self.call}>"

    def cancel(self) -> None:
        self._cancelled = True

    def when(self) -> float:
        return self._when


class SimulatedTask(asyncio.Task[T]):
    """Hashed by its number, so that sets of tasks are in the same order each time."""

    def __init__(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        number: int,
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self.number = number
        super().__init__(coro, loop=loop, name="simulated", context=context)
        self._log_destroy_pending = False

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        """What asyncio says of a task takes long, and is asked for at each cancellation."""
        return f"<task {self.number}>"


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module's docstring.

    Args:
        seed: of the order in which strands run.

    Attributes:
        place: where a new task runs, if not in the strand that makes it; told the task's name.
        world_of: whatever the code that runs here belongs to.
        now: true time, seconds since the loop began.
        turns: how many turns strands have taken.
    """

    _stopping: bool  # asyncio's own, which `stop` sets

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.place: Callable[[str], Strand | None] = lambda task: None
        self.world_of: object = None
        self.now = 0.0
        self.turns = 0
        self.errors: list[str] = []
        self.world = Strand("world", Clock(), self)
        self._chance = random.Random(seed)  # noqa: S311  # not for secrets
        self._runnable: list[Strand] = []
        # Due in true time, a tie-breaker, what to run where, and when by that strand's clock.
        self._timers: list[tuple[float, int, Callback, Strand, float | None]] = []
        self._numbers = count()
        self._tasks: list[asyncio.Task[Any]] = []
        self._running_strand = self.world
        self._spinning = 0
        self.set_exception_handler(self._note_error)

    # -- what asyncio asks for --------------------------------------------------------------------

    def time(self) -> float:
        return self._running_strand.clock.local(self.now)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        place = context.get(strand) or self.world
        handle = Callback(callback, args, context)
        self._put(place, handle)
        return handle

    @property
    def call_soon_threadsafe(self) -> Callable[..., asyncio.Handle]:  # type: ignore[override]  # asked for only to be called
        """Of the strand that asks for it: to the others each strand is a loop of its own.

        So what the thread of a lease tells a blocked event loop is heard once that runs again.
        """
        place = strand.get(self.world)

        def call(
            callback: Callable[..., object],
            *args: Any,
            context: contextvars.Context | None = None,
        ) -> asyncio.Handle:
            context = contextvars.copy_context() if context is None else context.copy()
            context.run(strand.set, place)
            return self.call_soon(callback, *args, context=context)

        return call

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """`when` is by the clock of the strand that will run it."""
        if context is None:
            context = contextvars.copy_context()
        place = context.get(strand) or self.world
        handle = Callback(callback, args, context, when)
        due = place.clock.true(when)
        heapq.heappush(self._timers, (due, next(self._numbers), handle, place, when))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        place = self.place(str(name or ""))
        if place is not None:
            context = context or contextvars.copy_context()
            context.run(strand.set, place)
        number = next(self._numbers)
        task: SimulatedTask[Any] = SimulatedTask(coro, number=number, loop=self, context=context)
        self._tasks.append(task)
        return task

    def _note_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")

    # -- for the simulation -----------------------------------------------------------------------

    def at(self, true: float, place: Strand, callback: Callable[..., object], *args: Any) -> None:
        """Run a callback in that strand at a true time."""
        handle = Callback(callback, args, place.context)
        heapq.heappush(self._timers, (true, next(self._numbers), handle, place, None))

    def begin(self, place: Strand, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of that strand, which shares nothing with the caller's."""
        context = contextvars.Context()
        context.run(strand.set, place)
        return self.create_task(coro, context=context)

    def stop_strand(self, place: Strand) -> None:
        """It runs nothing until `resume_strand`."""
        place.stopped = True

    def resume_strand(self, place: Strand) -> None:
        place.stopped = False
        self._enqueue(place)

    def kill_strand(self, place: Strand) -> None:
        """It never runs again."""
        place.dead = True
        place.ready.clear()

    def abandon(self) -> None:
        """Close what is left of every task; nothing of it runs in the simulation any more."""
        for timer in self._timers:
            timer[2].cancel()
        self._timers.clear()
        self._runnable.clear()
        while self._tasks:
            task: Any = self._tasks.pop()
            if not task.done():
                with contextlib.suppress(BaseException):  # user code may do anything here
                    task.get_coro().close()

    # -- turns ------------------------------------------------------------------------------------

    def _put(self, place: Strand, handle: Callback) -> None:
        if not place.dead:
            place.ready.append(handle)
            if not place.queued:
                self._enqueue(place)

    def _enqueue(self, place: Strand) -> None:
        if place.ready and not (place.queued or place.stopped or place.dead):
            place.queued = True
            self._runnable.append(place)

    def _run_once(self) -> None:
        """Turn after turn until the loop is told to stop: asyncio asks for them one by one."""
        with known(self):
            while not self._stopping:
                self._turn()

    def _turn(self) -> None:
        timers, runnable = self._timers, self._runnable
        if timers and timers[0][0] <= self.now:
            self._fire_timers()
        while not runnable:
            self._jump()
        index = int(self._chance.random() * len(runnable)) if len(runnable) > 1 else 0
        place = runnable[index]
        runnable[index] = runnable[-1]
        runnable.pop()
        place.queued = False
        if place.stopped or place.dead:
            return
        self.turns += 1
        if self.turns > TURNS_MAX:
            self.turns = 0
            raise Stuck(f"more than {TURNS_MAX} turns at {self.now:.3f} s, in {place.name}")
        self._run_batch(place)
        if place.ready:
            self._enqueue(place)
        self._spinning += 1
        self.now += TURN_SECONDS if self._spinning < SPIN_TURNS else SPIN_SECONDS

    def _run_batch(self, place: Strand) -> None:
        """What was ready when the turn began, as one iteration of asyncio's own loop does."""
        ready = place.ready
        self._running_strand = place
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                try:
                    handle.context.run(handle.call, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as e:  # noqa: BLE001  # as asyncio's loop does
                    self.call_exception_handler({"message": f"in {handle}", "exception": e})
                if place.stopped or place.dead:
                    break
        finally:
            self._running_strand = self.world

    def _jump(self) -> None:
        if not self._timers:
            raise Stuck(f"at {self.now:.3f} s every task waits and no timer is set")
        self.now = max(self.now, self._timers[0][0])
        self._fire_timers()

    def _fire_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            due, number, handle, place, when = heapq.heappop(timers)
            if handle._cancelled or place.dead:
                continue
            if when is not None and place.clock.local(self.now) < when:
                # The machine was suspended meanwhile, or still is.
                due = max(place.clock.true(when), self.now + SUSPENDED_LOOK)
                heapq.heappush(timers, (due, number, handle, place, when))
                continue
            self._spinning = 0
            self._put(place, handle)
