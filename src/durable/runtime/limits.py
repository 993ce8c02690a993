"""The times that end a workflow function: the run's deadline, and the end of its clean-up."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from durable.errors import RunTimeout
from durable.protocol import failures
from durable.runtime.cancelling import Cancelling
from durable.runtime.closing import Finished
from durable.runtime.function import CUT_GRACE, Function
from durable.runtime.gate import Gate
from durable.runtime.parking import Parking


@dataclass(kw_only=True)
class Limits:
    """Those of one execution.

    Attributes:
        deadline: when the run fails unless it is over, in store time; 0: never.
        cleanup: seconds that a cancelled run may take to clean up.
        cleaning_since: when an earlier owner began with that, in store time.
        now: the store's time.
        spawn: starts a task of the run's own.
    """

    run_id: str
    deadline: float
    cleanup: float
    cleaning_since: float | None
    now: Callable[[], float]
    gate: Gate
    parking: Parking
    function: Function
    cancelling: Cancelling
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]

    def start(self) -> None:
        """Before the function begins."""
        if self.deadline and (left := self.deadline - self.now()) > 0:
            self.spawn(partial(self._expire, left))
        elif self.deadline:  # it passed while nobody held the run: no body starts
            self.function.over = self._ran_out()
        if self.cancelling.asked is not None:
            self.limit_cleanup()

    # -- the deadline -----------------------------------------------------------------------------

    async def _expire(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        if self.function.undoing.owes:
            await self.function.cut(self._ran_out())
        else:
            self.gate.close(self._ran_out())

    def _ran_out(self) -> Finished:
        run = self.run_id
        error = RunTimeout(
            f"run {run!r} was not over at the deadline that its timeout set", run=run
        )
        return Finished(failure=failures.from_exception(error), ran_out=True)

    # -- clean-up ---------------------------------------------------------------------------------

    def limit_cleanup(self) -> None:
        """The run is cancelled: its function has so long, whatever it does."""
        since = self.now() if self.cleaning_since is None else self.cleaning_since
        self.parking.not_beyond(since + self.cleanup)
        self.spawn(partial(self._end_cleanup, since + self.cleanup - self.now()))

    async def _end_cleanup(self, seconds: float) -> None:
        stubborn = self.cancelling.stubborn
        with anyio.move_on_after(max(0.0, seconds)):
            await stubborn.wait()
        self.cancelling.expire()
        with anyio.move_on_after(CUT_GRACE):
            await stubborn.wait()
        await self.function.cut(Finished(cancelled=True, failure=self.cancelling.failure()))
