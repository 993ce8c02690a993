"""Time that stands still, and jumps as soon as somebody waits for it and nothing else is left.

The clock is asked by its event loop whenever no task can run: `idle()`. Then

- nobody outside waits for anything: time stands still;
- a thread computes, or a body waits for a socket: time stands still for a while, and then passes
  as on a real clock until it comes back, so that a timeout around real work means something;
- otherwise time jumps to the next timer. If there is none, what is waited for will never come.

`VirtualLoop` and `TrioClock` connect it with asyncio and with trio.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  # the loop underneath is what is virtual here
import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio

from durable.system import System

RESOLUTION = 1e-6  # seconds; a float that counts years resolves no less
NEVER = 1e12  # seconds, some 30,000 years: a timer that far away is none
UNNOTICED = 5.0  # real seconds: shorter work takes no virtual time, so that time is exact
WAIT_MAX = 3600.0  # real seconds; no operating system waits for centuries
JUMPS_MAX = 50_000  # without progress of a run: its code asks for ever


@dataclass(eq=False)
class Pending:
    """Somebody outside the event loop waits for something in it.

    Attributes:
        moves: time may pass for it.
        scope: cancelled when what it waits for will never come; `stuck` then says why.
    """

    moves: bool = True
    scope: anyio.CancelScope | None = None
    stuck: str = ""


class VirtualClock:
    """See the module's docstring. Read from any thread; moved by its event loop alone.

    Attributes:
        at_work: whether real work is under way, which takes real time.
        explain: why nothing will ever happen, for the error.
    """

    def __init__(self) -> None:
        self.at_work: Callable[[], bool] = lambda: False
        self.explain: Callable[[], str] = lambda: "nothing will ever happen"
        self._real = System().boot
        self._seconds = 0.0
        self._since: float | None = None  # while it passes as on a real clock
        self._busy_since: float | None = None  # on a real clock
        self._jumps = 0
        self._pending: set[Pending] = set()
        self._quiet: list[anyio.Event] = []

    def now(self) -> float:
        """Seconds since it was made."""
        since = self._since
        return self._seconds if since is None else self._seconds + self._real() - since

    def progress(self) -> None:
        """Something happened in a run."""
        self._jumps = 0
        self._busy_since = None

    @contextlib.contextmanager
    def waiting(self, pending: Pending) -> Iterator[None]:
        """While the block lasts, somebody waits."""
        self._pending.add(pending)
        self._jumps = 0
        try:
            yield
        finally:
            self._pending.discard(pending)

    async def quiet(self) -> None:
        """Until everything is done that can be done without time passing."""
        event = anyio.Event()
        self._quiet.append(event)
        await event.wait()

    def idle(self, deadline: float) -> float:
        """No task can run and the next timer is at `deadline`: real seconds to wait, or inf."""
        self._seconds, self._since = self.now(), None
        moves = any(pending.moves for pending in self._pending)
        if self.at_work():
            if not moves:
                return math.inf
            return self._wait_for_work(deadline)
        self._busy_since = None
        if self._quiet:
            quiet, self._quiet = self._quiet, []
            for event in quiet:
                event.set()
            return 0
        if not moves:
            return math.inf
        if deadline - self._seconds > NEVER or self._jumps > JUMPS_MAX:
            return 0 if self._give_up() else math.inf
        self._jumps += 1
        self._seconds = max(self._seconds, deadline)
        return 0

    def _wait_for_work(self, deadline: float) -> float:
        now = self._real()
        self._busy_since = now if self._busy_since is None else self._busy_since
        left = self._busy_since + UNNOTICED - now
        if left > 0:
            return left
        self._since = now
        return min(max(0.0, deadline - self._seconds), WAIT_MAX)

    def _give_up(self) -> bool:
        """What is waited for will never come: end the waits. False: there was none to end."""
        told = False
        for pending in self._pending:
            if pending.scope is not None and not pending.stuck:
                pending.stuck = self.explain()
                pending.scope.cancel()
                told = True
        return told


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop on such a clock."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._virtual = clock
        self._clock_resolution = RESOLUTION
        self._in_executor = 0
        internals: Any = self
        self._poll: Callable[[float | None], Any] = internals._selector.select
        internals._selector.select = self._select

    def time(self) -> float:
        return self._virtual.now()

    def does_io(self) -> bool:
        """Whether anything but this loop's own wake-up pipe is open, or an executor works."""
        selector: Any = self
        return self._in_executor > 0 or len(selector._selector.get_map()) > 1

    def run_in_executor(  # type: ignore[override]  # its types name what no caller sees
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        future = super().run_in_executor(executor, func, *args)
        self._in_executor += 1
        future.add_done_callback(lambda future: self._executed())
        return future

    def _executed(self) -> None:
        self._in_executor -= 1

    def _select(self, timeout: float | None) -> Any:
        events = self._poll(0)
        if events or timeout == 0:
            return events
        timers: Any = self._scheduled  # type: ignore[attr-defined]  # no part of asyncio's types
        wait = self._virtual.idle(timers[0].when() if timers else math.inf)
        return self._poll(None if wait == math.inf else wait)


class TrioClock:
    """Trio's clock, as `trio.abc.Clock` wants it, and an instrument of the same run.

    What is handed to the loop from outside, or by `run_sync_soon`, is seen only when it polls: so
    it polls once, without waiting, after the last task has run and before the clock is asked.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual = clock
        self._polled = False

    def before_task_step(self, task: object) -> None:
        """A task runs: what it leads to has not been looked for yet."""
        del task
        self._polled = False

    def start_clock(self) -> None:
        """It stands still already."""

    def current_time(self) -> float:
        return self._virtual.now()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        if not self._polled:
            self._polled = True
            return 0
        return self._virtual.idle(deadline)


def trio_does_io() -> bool:
    """Whether a task of this trio run waits for a file descriptor, trio's own aside."""
    import trio

    io: Any = trio.lowlevel.current_statistics().io_statistics
    waiting = getattr(io, "tasks_waiting", None)
    if waiting is None:
        waiting = io.tasks_waiting_read + io.tasks_waiting_write
    return int(waiting) > 1
