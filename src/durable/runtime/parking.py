"""Whether a run stands still: then it gives up its worker's memory and place, for any time.

A run may be parked when everything that its code does is to stand in durable waits:

- its strands, which are the workflow function and each branch of a `gather`, `map` or `select`.
  One that awaits its branches, or an inline workflow, stands if these do;
- its durable calls, in whatever task: a step's body, or its way into the record, forbids it.

Tasks of the user's own that stand elsewhere do not count: the park cancels them.

A wait that is over within `PATIENCE` stays in place. If the end of some wait is not known (an
event, a child), the run stands for that long before it is parked; a worker that is full does not
wait, since others need the place.

What kinds of waits there are is no matter here: whoever waits durably says so by
`with parking.wait(scope, path, due):` around the await, in a call that `Call` drives.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any

import anyio
import msgspec

from durable.runtime.closing import Closing, Parked
from durable.runtime.news import News
from durable.runtime.scopes import Scope, Strand
from durable.runtime.turns import strand, turn
from durable.runtime.turnstile import TURNS

PATIENCE = 10.0  # seconds that a wait may take in place
ROUNDING = 1e-6  # seconds; a timer so short may end without the clock having moved at all


class Standing(msgspec.Struct, frozen=True):
    """A durable wait that is standing.

    Attributes:
        due: when it ends by itself, by the store's clock; None: something else must happen.
        certain: nothing but time ends it.
        why: what it waits for, in words.
    """

    path: str
    due: float | None
    certain: bool
    why: str


class Parking:
    """Counts what stands and what moves in one execution, and parks it.

    Args:
        now: the store's time.
        deadline: when the run fails unless it is over, in store time; 0: never.
        always: park every wait at once, however short; a mode for tests.
        crowded: whether runs wait for a place in this worker.
        activity: a number that grows with everything that the run does.
        forbidden: whether something else forbids a park.
        close: closes the run.
        spawn: starts a task of the run's own.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        deadline: float,
        always: bool,
        crowded: Callable[[], bool],
        activity: Callable[[], int],
        forbidden: Callable[[], bool],
        close: Callable[[Closing], None],
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
    ) -> None:
        self._now = now
        self._deadline = deadline or math.inf
        self._always = always
        self._crowded = crowded
        self._activity = activity
        self._forbidden = forbidden
        self._close = close
        self._spawn = spawn
        self._moving = 0  # strands and calls that do not stand
        self._standing: dict[int, Standing] = {}  # by the identity of its Wait
        self._watching = False
        self._changed = News()
        self._changes = 0

    def release(self) -> None:
        """The run is closed: it is not parked any more."""
        self._forbidden = _always

    def not_beyond(self, time: float) -> None:
        """Something is to be done at that time, in store time, even if the run is parked."""
        self._deadline = min(self._deadline, time)
        self.changed()

    # -- what moves -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def goes_on(self, line: Strand) -> Iterator[None]:
        """Around all that a branch does."""
        self.begins(line)
        try:
            yield
        finally:
            if not line.standing:
                self._moving -= 1
            self.changed()

    def begins(self, line: Strand) -> None:
        """The workflow function begins; its end is that of the run."""
        if not line.standing:
            self._moving += 1

    def call_begins(self) -> None:
        """A durable call is driven."""
        self._moving += 1

    def call_ends(self) -> None:
        """It has its outcome, or was cancelled."""
        self._moving -= 1
        if self._standing or self._watching:
            self.changed()

    # -- what stands ------------------------------------------------------------------------------

    def delegates(self, scope: Scope) -> Stand:
        """Around a wait of this scope's strand for strands that are counted themselves."""
        return Stand(self, scope, None)

    def wait(
        self, scope: Scope, path: str, due: float | None, *, certain: bool = False, why: str = ""
    ) -> Stand:
        """Around the await of a durable wait, in a call that is driven in this scope.

        Args:
            path: of the wait.
            due: when it ends by itself, by the store's clock.
            certain: nothing but time ends it.
            why: what it waits for, in words.
        """
        return Stand(self, scope, Standing(path, due, certain, why))

    def deadline(self, path: str, due: float, *, why: str = "") -> Deadline:
        """As `wait`, for what no strand or call waits for: the deadline of a block of code."""
        return Deadline(self, Standing(path, due, certain=True, why=why))

    def _stands(self, line: Strand | None, standing: Standing | None, key: int) -> None:
        if line is not None:
            line.standing += 1
            if line.standing == 1:
                self._moving -= 1
        if standing is not None:
            self._standing[key] = standing
            self._moving -= 1  # its call
        self.changed()

    def _moves(self, line: Strand | None, standing: Standing | None, key: int) -> None:
        if line is not None:
            line.standing -= 1
            if line.standing == 0:
                self._moving += 1
        if standing is not None:
            del self._standing[key]
            self._moving += 1
        self.changed()

    # -- parking ----------------------------------------------------------------------------------

    def changed(self) -> None:
        """Judge anew: something stands, moves, or was looked at."""
        self._changes += 1
        self._changed.tell()
        if self._standing and not self._watching:
            self._watching = True
            self._spawn(self._watch)

    async def _watch(self) -> None:
        while True:
            changes, since = self._changes, anyio.current_time()
            while self._changes == changes:
                left = self._left(anyio.current_time() - since)
                if left == 0 and await self._rests() and self._changes == changes:
                    self._close(self._parked())
                    return
                with anyio.move_on_after(left or (math.inf if left is None else 0)):
                    await self._changed.wait()

    def _left(self, stood: float) -> float | None:
        """Seconds until it is to be parked, None while it is not to be."""
        if self._moving or not self._standing or self._forbidden():
            return None
        if self._always:
            return 0
        waits = self._standing.values()
        nearest = min(self._deadline, *(_due(wait) for wait in waits))
        if nearest - self._now() <= PATIENCE:
            return None
        if self._crowded() or all(wait.certain for wait in waits):
            return 0
        left = PATIENCE - stood
        return left if left > ROUNDING else 0.0

    async def _rests(self) -> bool:
        """Tasks that the run has just started begin, and what they do is seen."""
        seen = self._activity()
        for _ in range(TURNS):
            await turn()
            if self._activity() != seen:
                return False
        return True

    def _parked(self) -> Parked:
        first = min(self._standing.values(), key=_due)
        if self._deadline < _due(first):
            return Parked("", self._deadline, first.why)
        return Parked(first.path, first.due, first.why)


def _always() -> bool:
    return True


def _due(wait: Standing) -> float:
    return math.inf if wait.due is None else wait.due


class Stand:
    """See `Parking.wait`. No generator: its frames would stand in every traceback."""

    __slots__ = ("_line", "_parking", "_scope", "_standing")

    def __init__(self, parking: Parking, scope: Scope, standing: Standing | None) -> None:
        self._parking = parking
        self._scope = scope
        self._standing = standing
        self._line: Strand | None = None

    def __enter__(self) -> None:
        # A task of the user's own that shares the scope is not its strand. In a sync scope the
        # thread is, and it waits for whatever is done for it in the event loop.
        if self._scope.owner < 0 or self._scope.owner == strand():
            self._line = self._scope.strand
        self._parking._stands(self._line, self._standing, id(self))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._parking._moves(self._line, self._standing, id(self))


class Deadline:
    """See `Parking.deadline`."""

    __slots__ = ("_parking", "_standing")

    def __init__(self, parking: Parking, standing: Standing) -> None:
        self._parking = parking
        self._standing = standing

    def __enter__(self) -> None:
        self._parking._standing[id(self)] = self._standing
        self._parking.changed()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del self._parking._standing[id(self)]
        self._parking.changed()
