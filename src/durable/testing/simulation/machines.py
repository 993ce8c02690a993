"""Machines: one process each, with clocks of its own, that can be stopped, suspended and killed."""

from __future__ import annotations

import random  # noqa: TID251  # one seed for everything is the point
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio

from durable.system import System
from durable.testing.simulation.history import History
from durable.testing.simulation.loop import Clock, SimulatedLoop, Strand

T = TypeVar("T")

EPOCH = 1_700_000_000.0  # 2023-11-14T22:13:20Z, the store's time when a simulation begins


class Machine:
    """One process on a machine of its own.

    Args:
        rate: how fast its clocks run.
        wall_offset: seconds by which its wall clock is wrong.

    Attributes:
        main: the strand of its event loop.
        lease: the strand of the thread that renews its lease.
    """

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        history: History,
        *,
        seed: str,
        rate: float = 1.0,
        wall_offset: float = 0.0,
    ) -> None:
        self.name = name
        self.chance = random.Random(seed)  # noqa: S311  # not for secrets
        self.wall_offset = wall_offset
        self.dead = False
        self.stopped = False
        self.gone = anyio.Event()  # it was killed, or came to its own end
        self.on_cancel: Callable[[], object] = lambda: None
        self.on_kill: Callable[[], object] = lambda: None
        self._loop = loop
        self._history = history
        self._boot = Clock(self.chance.uniform(0, 1e6), rate)  # counts suspend
        self._monotonic = Clock(self._boot.offset, rate)
        self.main = Strand(f"{name}/main", self._monotonic, loop)
        self.lease = Strand(f"{name}/lease", self._monotonic, loop)
        self.system = System(
            boot=self.boot_clock,
            wall=lambda: EPOCH + self._boot.rate * loop.now + self.wall_offset,
            token=lambda: f"{self.chance.getrandbits(96):024x}",
            uniform=self.chance.uniform,
        )

    def boot_clock(self) -> float:
        """Seconds on the clock that counts suspend."""
        return self._boot.local(self._loop.now)

    def monotonic_clock(self) -> float:
        """Seconds on the clock that does not, which the event loop has."""
        return self._monotonic.local(self._loop.now)

    def run(self, coro: Coroutine[Any, Any, T]) -> Any:
        """Begin a task of this process."""
        return self._loop.begin(self.main, coro)

    @property
    def alive(self) -> bool:
        """It runs now: neither stopped nor dead."""
        return not (self.dead or self.stopped)

    # -- what befalls it --------------------------------------------------------------------------

    def kill(self) -> None:
        """As kill -9: nothing of it runs any more; what it has sent is under way."""
        if not self.dead:
            self.dead = True
            self.gone.set()
            self._history.happened(self.name, "killed")
            self._loop.kill_strand(self.main)
            self._loop.kill_strand(self.lease)
            self.on_kill()

    def stop(self, seconds: float, *, suspend: bool = False) -> None:
        """As SIGSTOP, or as a suspended machine, for so long."""
        if self.stopped or self.dead:
            return
        self.stopped = True
        self._history.happened(self.name, f"{'suspended' if suspend else 'stopped'} {seconds:g} s")
        if suspend:
            self._monotonic.suspend(self._loop.now)
        self._loop.stop_strand(self.main)
        self._loop.stop_strand(self.lease)
        self._loop.at(self._loop.now + seconds, self._loop.world, self._wake)

    def _wake(self) -> None:
        self.stopped = False
        self._monotonic.resume(self._loop.now)
        if not self.dead:
            self._history.happened(self.name, "woken")
            self._loop.resume_strand(self.main)
            self._loop.resume_strand(self.lease)

    def block(self, seconds: float) -> None:
        """Its event loop is blocked for so long; its lease is renewed all the same."""
        if self.stopped or self.dead or self.main.stopped:
            return
        self._history.happened(self.name, f"blocked {seconds:g} s")
        self._loop.stop_strand(self.main)
        self._loop.at(self._loop.now + seconds, self._loop.world, self._unblock)

    def _unblock(self) -> None:
        if not self.stopped:
            self._loop.resume_strand(self.main)

    def cancel(self) -> None:
        """What it does is cancelled from outside, as by the end of an event loop."""
        self._history.happened(self.name, "cancelled")
        self._loop.at(self._loop.now, self.main, self.on_cancel)

    def jump(self, seconds: float) -> None:
        """Its wall clock is set."""
        self._history.happened(self.name, f"wall clock jumps by {seconds:g} s")
        self.wall_offset += seconds
