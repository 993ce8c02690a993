"""Event loops whose time is virtual: they never wait, and say so when a program is stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import pytest

T = TypeVar("T")

FOR_EVER = 1e6  # virtual seconds; a program that is still waiting then is in a deadlock
BUSY_TURNS = 1_000  # anyio cancels again every turn: a loop that only does that lets time pass
TURNS_MAX = 100_000  # of the event loop; a program that takes more is spinning

SECONDS_MAX = 60  # of real time, for what cannot run under a virtual clock

BACKENDS = ["asyncio", pytest.param("trio", marks=pytest.mark.requires("trio"))]


class Stuck(AssertionError):
    """Nothing will ever happen any more, or something happens for ever."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer as soon as nothing else can run."""

    def __init__(self, for_ever: float = FOR_EVER) -> None:
        super().__init__()
        self._for_ever = for_ever
        # After a year of seconds a nanosecond is lost in a float, and no timer would ever be due.
        self._clock_resolution = 1e-6
        self.set_exception_handler(lambda loop, context: None)  # random programs leave errors
        self._seconds = 0.0
        self._turns = 0
        self._busy = 0
        self._select = self._selector.select  # type: ignore[attr-defined]  # no part of the public types
        self._selector.select = self._jump  # type: ignore[attr-defined]  # no part of the public types

    def time(self) -> float:
        return self._seconds

    def _jump(self, timeout: float | None) -> Any:
        self._turns += 1
        if self._turns > TURNS_MAX:
            self._turns -= 5_000  # so that the loop can be closed
            raise Stuck(f"more than {TURNS_MAX} turns of the event loop")
        events = self._select(0)
        if timeout is None and not events:
            raise Stuck("every task waits and no timer is set")
        self._busy = 0 if timeout else self._busy + 1
        timers: Any = self._scheduled  # type: ignore[attr-defined]  # no part of the public types
        due = timers[0].when() if timers else self._seconds
        if (timeout and not events) or (self._busy > BUSY_TURNS and due < self._for_ever):
            self._busy = 0
            self._seconds = max(self._seconds, due)
        return events


def run(
    backend: str, main: Callable[[], Awaitable[T]], *, seed: int = 0, for_ever: float = FOR_EVER
) -> T:
    """`main` under a virtual clock; the seed fixes what trio leaves to chance."""

    async def bounded() -> T:
        with anyio.move_on_after(for_ever):
            return await main()
        raise Stuck("every task waits for ever")

    name, options = virtual(backend, for_ever, seed=seed)
    if backend == "trio":
        options["instruments"] = [_TrioTurns()]
    return anyio.run(bounded, backend=name, backend_options=options)


def virtual(
    backend: str, for_ever: float = FOR_EVER, *, seed: int = 0
) -> tuple[str, dict[str, Any]]:
    """What an `anyio_backend` fixture gives for tests on a virtual clock; the seed as of `run`."""
    if backend == "asyncio":
        return backend, {"loop_factory": lambda: VirtualLoop(for_ever)}
    from trio.testing import MockClock

    _seed_trio(seed)
    return backend, {"clock": MockClock(autojump_threshold=0)}


def _seed_trio(seed: int) -> None:
    """Trio reverses its batches of tasks by chance; this is how hypothesis makes it repeat."""
    import trio

    internals: Any = trio._core._run  # type: ignore[attr-defined]  # no part of the public types
    internals._r.seed(seed)
    internals._ALLOW_DETERMINISTIC_SCHEDULING = True


class _TrioTurns:
    """Ends a trio program that spins."""

    def __init__(self) -> None:
        self._turns = 0

    def before_io_wait(self, timeout: float) -> None:
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise KeyboardInterrupt(f"more than {TURNS_MAX} turns of the event loop")


def run_with_threads(backend: str, main: Callable[[], Awaitable[T]]) -> T:
    """`main` under the machine's clock: threads are invisible to a virtual one."""

    async def bounded() -> T:
        with anyio.fail_after(SECONDS_MAX):
            return await main()

    return anyio.run(bounded, backend=backend)
