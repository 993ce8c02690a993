"""A clock that a test moves by hand, for event loops whose work is in threads or processes.

A virtual clock jumps when its loop has nothing to do, and would not see that a thread or a child
process has. This one stands still until the test says otherwise: once a fact is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

from durable.loops import caller
from durable.system import System

T = TypeVar("T")

EPOCH = 1_700_000_000.0  # the wall time at its zero
FAR = 3600.0  # seconds; no loop sleeps so long, it is woken when the clock moves


class ClockByHand:
    """Shared by all event loops that `run` starts, in whatever threads."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._wakers: list[Callable[[Callable[[], object]], bool]] = []

    def now(self) -> float:
        """Seconds since it was made; any thread may ask."""
        return self._seconds

    def system(self) -> System:
        """A machine whose clocks are this one."""
        return System(boot=self.now, wall=lambda: EPOCH + self.now())

    def move(self, seconds: float) -> None:
        """Let so many seconds pass, in every loop. Any thread may do so, one at a time."""
        self._seconds += seconds
        for wake in list(self._wakers):  # meanwhile other threads may start loops
            if not wake(_nothing):
                self._wakers.remove(wake)

    def run(self, main: Callable[..., Awaitable[T]], *args: object, backend: str = "asyncio") -> T:
        """As `anyio.run`, on this clock."""

        async def known() -> T:
            self._wakers.append(caller())
            return await main(*args)

        if backend == "asyncio":
            options: dict[str, Any] = {"loop_factory": lambda: _Loop(self)}
        else:
            options = {"clock": _TrioClock(self)}
        return anyio.run(known, backend=backend, backend_options=options)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: ClockByHand) -> None:
        super().__init__()
        self._by_hand = clock
        internals: Any = self
        self._poll: Callable[[float | None], Any] = internals._selector.select
        internals._selector.select = self._select

    def time(self) -> float:
        return self._by_hand.now()

    def _select(self, timeout: float | None) -> Any:
        # Moving the clock wakes it.
        return self._poll(None if timeout else timeout)


class _TrioClock:
    """As `trio.abc.Clock` wants it."""

    def __init__(self, clock: ClockByHand) -> None:
        self._by_hand = clock

    def start_clock(self) -> None:
        """It stands still already."""

    def current_time(self) -> float:
        return self._by_hand.now()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return 0 if deadline <= self._by_hand.now() else FAR


def _nothing() -> None:
    """It only wakes the loop."""
