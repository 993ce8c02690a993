"""Threads of simulated processes: real ones, of which one runs at a time, when its turn comes.

A thread gets the baton from the event loop, which stands still meanwhile, and gives it back when
it has ended or waits for an `Event`. So what threads do has its place in the order of all turns,
and takes no virtual time but what they `sleep`. A thread of a process that was killed is never
given the baton again; what is left of it is ended with the simulation.

A child process is such a thread, too, which knows nothing of its parent and can be killed.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio._backends._asyncio as backend
import anyio.lowlevel
import anyio.to_process

import durable.runtime.threads as bridge
from durable.runtime import child, processes
from durable.testing.simulation.loop import strand

PROCESS_SECONDS = 0.1  # until a child process has started


class Killed(BaseException):
    """Raised where a thread waits that was killed, or whose simulation has ended."""


class _Carrier:
    """A real thread; used again and again."""

    def __init__(self) -> None:
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self.work: Callable[[], None]
        threading.Thread(target=self._live, name="simulated", daemon=True).start()

    def _live(self) -> None:
        while True:
            self._go.acquire()
            self.work()
            self._back.release()

    def give(self) -> None:
        """The baton, until it comes back. In the event loop."""
        self._go.release()
        self._back.acquire()

    def give_back(self) -> None:
        """And wait for it. In the thread."""
        self._back.release()
        self._go.acquire()


class _Errand:
    """A function that runs in a thread of one process, or in a child of it."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context | None = None,
    ) -> None:
        self.over = anyio.Event()
        self.has_ended = False
        self._killed = False
        self._place = strand.get()
        self._outcome: list[Any] = []
        self._error: list[BaseException] = []
        self._context = context or contextvars.copy_context()
        self._carrier = _idle.pop() if _idle else _Carrier()
        self._carrier.work = lambda: self._run(function, args)
        _open.append(self)

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        _here.errand = self
        try:
            if not self._killed:
                self._outcome.append(self._context.run(function, *args))
        except BaseException as e:  # noqa: BLE001  # whoever waits for it gets it
            self._error.append(e)
        self.has_ended = True

    def proceed_soon(self) -> None:
        """It has something to do: it runs when its process has a turn."""
        self._place.loop.call_soon(self._proceed, context=self._place.context)

    def _proceed(self) -> None:
        if not self.has_ended:
            self._carrier.give()
        if self.has_ended and self in _open:
            self._leave()
            self.over.set()

    def _leave(self) -> None:
        _open.remove(self)
        _idle.append(self._carrier)

    def pause(self) -> None:
        """Let others run until there is something to do. In the thread."""
        if not self._killed:
            self._carrier.give_back()
        if self._killed:
            raise Killed

    def end(self) -> None:
        """Kill it, and wait for that. Not in the thread."""
        self._killed = True
        while not self.has_ended:
            self._carrier.give()
        self._leave()

    def kill(self) -> None:
        """It goes no further."""
        self._killed = True
        self.proceed_soon()

    def answer(self) -> Any:
        if self._error:
            raise self._error[0]
        return self._outcome[0]


class _Here(threading.local):
    errand: _Errand


_here = _Here()
_idle: list[_Carrier] = []
_open: list[_Errand] = []


class Event:
    """As `threading.Event`, for threads of simulated processes."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: _Errand | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiting is not None:
            self._waiting.proceed_soon()

    def wait(self) -> None:
        self._waiting = _here.errand
        while not self._is_set:
            self._waiting.pause()


def sleep(seconds: float) -> None:
    """As `time.sleep`: the thread waits for so long, by the clock of its machine."""
    over, place = Event(), strand.get()
    loop = place.loop
    loop.at(place.clock.true(place.clock.local(loop.now) + seconds), place, over.set)
    over.wait()


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """For the time of one simulation: whatever asks for a thread gets such a one."""
    owner: Any = backend.AsyncIOBackend
    saved = owner.__dict__["run_sync_in_worker_thread"]
    owner.run_sync_in_worker_thread = classmethod(_run)
    places: list[tuple[Any, str, Any]] = [
        (bridge, "Event", Event), (anyio.to_process, "run_sync", _run_in_child),
        (child, "_watching", True), (child, "_boot", _boot), (processes, "_boot", _boot),
    ]  # fmt: skip
    before = [(place, name, place.__dict__[name]) for place, name, _ in places]
    for place, name, value in places:
        setattr(place, name, value)
    try:
        yield
    finally:
        owner.run_sync_in_worker_thread = saved
        for place, name, value in before:
            setattr(place, name, value)


async def _run(
    _cls: object,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    abandon_on_cancel: bool = False,
    limiter: anyio.CapacityLimiter | None = None,
) -> Any:
    """In the place of what anyio has for it: the function in a thread of this process."""
    await anyio.lowlevel.checkpoint()
    async with limiter or contextlib.nullcontext():
        with anyio.CancelScope(shield=not abandon_on_cancel):
            errand = _Errand(function, args)
            errand.proceed_soon()
            await errand.over.wait()
        return errand.answer()


async def _run_in_child(
    function: Callable[..., Any],
    *args: Any,
    cancellable: bool,
    limiter: anyio.CapacityLimiter,
) -> Any:
    """In the place of what anyio has for it: the function in a child of this process."""
    async with limiter:
        await anyio.sleep(PROCESS_SECONDS)
        context = contextvars.Context()
        context.run(strand.set, strand.get())
        errand = _Errand(function, args, context)
        errand.proceed_soon()
        try:
            with anyio.CancelScope(shield=not cancellable):
                await errand.over.wait()
        except anyio.get_cancelled_exc_class():
            errand.kill()
            raise
        return errand.answer()


def _boot() -> float:
    """The clock of the running process that counts suspend."""
    place = strand.get()
    world: Any = place.loop.world_of
    boot: float = world.machines[place.name.partition("/")[0]].boot_clock()
    return boot


def end_all() -> None:
    """What is left of threads when a simulation has ended."""
    for errand in _open:
        errand.end()
