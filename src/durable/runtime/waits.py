"""Durable waits: sleeps, events and deadlines, as calls with a place in the call tree.

A wait has at most one absolute deadline, by the store's clock, in its claim `waits/<path>`: the
first to begin it writes it, everybody else adopts it.

A sleep needs no record of its outcome, since everybody can tell when it is over. Its place in
the order of outcomes is given when it is due, and recorded with whatever is recorded next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import anyio

from durable.errors import WaitTimeout
from durable.protocol import failures, moments
from durable.protocol.failures import Failure
from durable.protocol.records import Step, Wait
from durable.runtime.calls import Call
from durable.runtime.inbox import Inbox
from durable.runtime.parking import Parking
from durable.runtime.performing import Performer
from durable.runtime.scopes import Scope
from durable.runtime.threadwatch import ThreadWatch
from durable.runtime.wishes import Answer, Wish

THREAD_GRACE = 1.0  # seconds for threads to come to their next call before another wait is over
LONGEST = 86400.0  # seconds between two looks at the store's clock, which may run otherwise


class Sleep(Call[None]):
    """`sleep` and `sleep_until`.

    Attributes:
        due_at: the deadline if the wait begins at that time; both by the store's clock.
    """

    __slots__ = ("due_at",)

    def __init__(self, scope: Scope, due_at: Callable[[float], float]) -> None:
        super().__init__(scope, "sleep", "sleep")
        self.due_at = due_at

    def course(self, branch: Scope) -> Coroutine[Any, Any, tuple[Step, object]]:
        return self.scope.execution.waits.sleep(self, branch)


class EventWait(Call[Any]):
    """`wait_event`, and the deadline of a block of code, which waits for no event.

    Attributes:
        event: the name of the event; None: there is nothing but the deadline.
        timeout: seconds from the begin of the wait to its deadline; None: it has none.
        wish: its decision to be, once it has begun and if none is recorded.
    """

    __slots__ = ("event", "timeout", "wish")

    def __init__(
        self, scope: Scope, event: str | None, kind: object, timeout: float | None
    ) -> None:
        if event is None:
            super().__init__(scope, "timeout", "timeout")
        else:
            super().__init__(scope, "event", f"event-{event}", returns=kind)
        self.event = event
        self.timeout = timeout
        self.wish: Wish | None = None

    def course(self, branch: Scope) -> Coroutine[Any, Any, tuple[Step, object]]:
        return self.scope.execution.waits.event(self, branch)

    def due_at(self, begun: float) -> float | None:
        return None if self.timeout is None else begun + self.timeout

    def why(self, wait: Wait) -> str:
        """What it waits for, in words."""
        until = "" if wait.due is None else f"until {moments.second(wait.due)}"
        return until if self.event is None else f"for event {self.event!r} {until}".rstrip()

    def timed_out(self, wait: Wait) -> Failure:
        """The error of a wait whose deadline has passed."""
        run, what = self.scope.execution.run_id, f"event {self.event!r}"
        if self.event is None:
            what = f"the end of block {self.path!r}"
        error = WaitTimeout(
            f"run {run!r} waited for {what} until {moments.stamp(wait.due or 0.0)}, in vain"
        )
        return failures.from_exception(error)


@dataclass(kw_only=True)
class Waits:
    """The courses of the waits of one execution.

    Attributes:
        passed: told of each wait that an earlier owner began and that is over now.
        threads: those that run the workflow's code.
    """

    performer: Performer
    parking: Parking
    inbox: Inbox
    passed: Callable[[Wait], None]
    threads: ThreadWatch

    # -- sleeping ---------------------------------------------------------------------------------

    def sleep(self, call: Sleep, branch: Scope) -> Coroutine[Any, Any, tuple[Step, object]]:
        """The course of a sleep."""
        performer = self.performer
        claimed = performer.claimed.get(call.path)
        if claimed is not None and (claimed.due or 0.0) <= self.now():
            # An earlier owner may have gone on behind it and told nobody yet: it is over, also
            # for a run that is cancelled now.
            call.cancellable = False

        async def body() -> tuple[Step, object]:
            wait = await self.begin(call, call.due_at)
            due = wait.due or 0.0
            with self.parking.wait(
                branch, call.path, due, certain=True, why=f"until {moments.second(due)}"
            ):
                await self._until(due, anyio.Event())
            await self._in_turn(due)
            self.over(call)
            step = performer.recorder.outcome(call, "value")
            step.time = due  # so that live and replay agree on what `now()` is
            return step, None

        return performer.perform(
            call, branch, lambda: performer.live(call, branch, body, record=self._wakes)
        )

    async def _wakes(self, call: Call[Any], _: Step, branch: Scope) -> None:
        """Hand the sleep over in its turn; nothing is written."""
        performer = self.performer
        await performer.gate.check_open(branch)
        n = performer.turnstile.issue()
        performer.recorder.riders.slept(n, call.path)
        await performer.pass_turn(performer.turnstile.live_turn(n), branch)

    # -- events -----------------------------------------------------------------------------------

    async def event(self, call: EventWait, branch: Scope) -> tuple[Step, object]:
        """The course of a wait for an event, or for a deadline alone."""

        async def stand(wish: Wish) -> None:
            call.wish = wish
            if call.event is not None:
                await self.inbox.offer(wish)
            if not wish.decided.is_set():
                await self._stand(call, branch, wish)

        outcome = await self.performer.perform(
            call, branch, lambda: self.inbox.decide(call, branch, stand, event=call.event)
        )
        self.inbox.received(call.path)
        return outcome

    async def _stand(self, call: EventWait, branch: Scope, wish: Wish) -> None:
        wait = await self.begin(call, call.due_at)
        certain = call.event is None
        with self.parking.wait(branch, call.path, wait.due, certain=certain, why=call.why(wait)):
            if wait.due is None:
                await wish.decided.wait()
            else:
                await self._until(wait.due, wish.decided)
        if wait.due is not None and not wish.decided.is_set():
            with anyio.CancelScope() as wish.standing:
                await self._in_turn(wait.due)
        with self.performer.turnstile.deciding():
            self.over(call)
            if not wish.decided.is_set():
                if call.event is not None:
                    await self.inbox.list()  # of an event whose bell was lost nobody has told us
                self.inbox.settle(wish, Answer("error", failure=call.timed_out(wait)))

    async def _until(self, due: float, decided: anyio.Event) -> None:
        """Until the store's clock says so, or the event is set."""
        while (left := due - self.now()) > 0 and not decided.is_set():
            with anyio.move_on_after(min(left, LONGEST)):
                await decided.wait()

    async def _in_turn(self, due: float) -> None:
        """Until all waits are over that were due before this one, and what comes of them is."""
        turnstile = self.performer.turnstile
        until = math.inf
        while (event := turnstile.overdue_turn(due)) is not None:
            try:
                await event.wait()
            finally:
                turnstile.give_up(event)
            until = min(until, anyio.current_time() + THREAD_GRACE)  # from its first turn
            left = until - anyio.current_time()
            if not self.threads.busy or left <= 0:
                return
            with turnstile.deciding(), anyio.move_on_after(left):
                await self.threads.idle()

    # -- for all ----------------------------------------------------------------------------------

    async def begin(self, call: Call[Any], due_at: Callable[[float], float | None]) -> Wait:
        """The claim of the call's wait: an earlier owner's, or ours with a deadline from now."""
        claimed = self.performer.claimed.get(call.path)
        if claimed is not None:
            return claimed
        recorder = self.performer.recorder
        return await recorder.claim_wait(recorder.wait(call, due_at(self.now())))

    def over(self, call: Call[Any]) -> None:
        """The call's wait is over: nobody needs to wake the run for it any more."""
        claimed = self.performer.claimed.get(call.path)
        if claimed is not None:
            self.passed(claimed)

    def now(self) -> float:
        return self.performer.around.store.now()
