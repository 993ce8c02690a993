"""Whether a run goes on: it is open until it is closed, each of its branches until decided.

From then on every durable call raises the cancellation again, and whatever waits inside one goes
on and finds that out. Code that swallows all of that is left behind in the end.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio
import msgspec

from durable.runtime.closing import Closing, Finished, Stopped
from durable.runtime.scopes import Scope
from durable.runtime.turns import cancellation, strand

log = logging.getLogger("durable")

REFUSALS_MAX = 100  # a task whose calls were refused this often in a closed run goes no further


class Gate:
    """Every durable call of one execution passes here, several times.

    Args:
        trusted: whether the owner still holds its lease.

    Attributes:
        closing: why the run was closed; None while it is open.
        ended: set when nothing of the run is left, or when the rest is left behind.
        function: the scope in which the workflow function runs.
    """

    def __init__(self, run_id: str, trusted: Callable[[], bool]) -> None:
        self.closing: Closing | None = None
        self.ended = anyio.Event()
        # Shielded: a cancellation from outside must not look like one of user code.
        self.function = anyio.CancelScope(shield=True)
        # `anyio.CancelScope(...)` asks which event loop runs, each time: half of its price.
        self._scope_of_this_loop = type(self.function)
        self._run_id = run_id
        self._trusted = trusted
        self._at_close: list[Callable[[], None]] = []
        self._waits: dict[anyio.CancelScope, Scope] = {}
        self._refused: Counter[int] = Counter()  # by strand

    # -- closing ----------------------------------------------------------------------------------

    def at_close(self, release: Callable[[], None]) -> None:
        """Have this called once, when the run is closed."""
        self._at_close.append(release)

    def close(self, why: Closing) -> None:
        """Unwind now; the first reason given counts."""
        if self.closing is None:
            self.closing = why
            self.function.cancel()
            self._end_waits()

    def finish(self, finished: Finished) -> None:
        """The function has come to its end, unless the run was closed before."""
        if self.closing is None:
            self.closing = finished
            self._end_waits()

    def _end_waits(self) -> None:
        for release in self._at_close:
            release()
        self._at_close.clear()  # whoever waited for it may know the gate
        for scope in list(self._waits):
            scope.cancel()

    def decided(self) -> None:
        """A decision closed branches: what waits in them goes on and finds that out.

        So their code sees the cancellation at once, whatever their calls were doing: on replay
        they may be doing something else.
        """
        for scope, branch in list(self._waits.items()):
            if branch.is_decided():
                scope.cancel()

    def wait(self, branch: Scope, *, shield: bool) -> Wait:
        """Around a wait that ends when the run is closed or the branch decided."""
        return Wait(self, self._waits, branch, self._scope_of_this_loop(shield=shield))

    # -- asking -----------------------------------------------------------------------------------

    def is_open(self, branch: Scope) -> bool:
        """Whether calls in this branch may go on."""
        if self.closing is not None or branch.decided:
            return False
        return branch.parent is None or not branch.parent.is_decided()

    def guard(self) -> bool:
        """Whether this owner may still act (promise P11); closes the run if not."""
        if self.closing is None and not self._trusted():
            self.close(Stopped("lease"))
        return self.closing is None

    def may_act(self, branch: Scope) -> bool:
        """Both: this owner may act, and calls in this branch may go on."""
        return self.guard() and not branch.is_decided()

    async def check_open(self, branch: Scope) -> None:
        """Raise the cancellation again if the run is closed or the branch decided."""
        if not self.is_open(branch):
            raise await self.refusal()

    # -- refusing ---------------------------------------------------------------------------------

    async def refusal(self) -> BaseException:
        """What a call raises whose run is closed or whose branch is decided.

        A task that asks too often of a closed run waits for ever.
        """
        if self.closing is not None and self.refused_too_often():
            if not self.ended.is_set():
                log.warning(
                    "run %r does not unwind: its code swallows cancellations; "
                    "one of its tasks is left behind",
                    self._run_id,
                )
                self.ended.set()
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()
        return await cancellation()

    def refused_too_often(self) -> bool:
        """Count one more refusal of this strand; True if it does not unwind."""
        self._refused[strand()] += 1
        return self._refused[strand()] > REFUSALS_MAX


class Wait(msgspec.Struct, eq=False):
    """See `Gate.wait`. No generator: one of these stands around every step."""

    _gate: Gate
    _waits: dict[anyio.CancelScope, Scope]
    _branch: Scope
    _scope: anyio.CancelScope

    def __enter__(self) -> Self:
        self._scope.__enter__()
        if not self._gate.is_open(self._branch):
            self._scope.cancel()
        self._waits[self._scope] = self._branch
        return self

    def shield(self) -> bool:
        """From now on nothing but the gate ends it; False if something else has, or will."""
        scope = self._scope
        if scope.cancel_called or scope.deadline != math.inf:
            return False
        scope.shield = True
        return True

    def end(self) -> None:
        """End this wait alone."""
        self._scope.cancel()

    def end_in(self, seconds: float) -> None:
        """End this wait alone if it still goes on after so long."""
        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + seconds)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        del self._waits[self._scope]
        return bool(self._scope.__exit__(kind, error, traceback))
