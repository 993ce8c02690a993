"""A call's course: its recorded outcome is handed over, or its body runs and is recorded first.

Nobody sees an outcome that is not recorded (promise P1; of `grouping`, nobody else than the run's
own code does), and everybody sees outcomes in their turn, which the turnstile gives.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel

from durable.protocol import values
from durable.protocol.records import Step, Wait
from durable.runtime import fit
from durable.runtime.bodies import Bodies
from durable.runtime.calls import Call, StepCall
from durable.runtime.cancellations import Cancellations
from durable.runtime.cancelling import Cancelling, OpenCall
from durable.runtime.closing import Stopped
from durable.runtime.gate import Gate
from durable.runtime.inflight import InFlight
from durable.runtime.publishing import Publishing
from durable.runtime.recording import Recorder
from durable.runtime.scopes import Scope
from durable.runtime.surroundings import Progress, Surroundings
from durable.runtime.turns import strand, turn
from durable.runtime.turnstile import Turnstile
from durable.runtime.undoing import Undoing

Outcome = Coroutine[Any, Any, tuple[Step, object]]
Record = Callable[[Call[Any], Step, Scope], Coroutine[Any, Any, None]]


@dataclass(kw_only=True)
class Performer:
    """Performs the calls of one execution.

    Attributes:
        recorded: outcomes that earlier owners recorded, by path.
        claimed: the waits that they began, by path.
    """

    around: Surroundings
    run_id: str
    recorded: Mapping[str, Step]
    claimed: Mapping[str, Wait]
    gate: Gate
    turnstile: Turnstile
    cancellations: Cancellations
    cancelling: Cancelling
    in_flight: InFlight
    bodies: Bodies
    publishing: Publishing
    recorder: Recorder
    undoing: Undoing

    async def perform(
        self, call: Call[Any], branch: Scope, live: Callable[[], Outcome]
    ) -> tuple[Step, object]:
        """The call's outcome and decoded value, in its turn.

        Raises the event loop's cancellation if the call was cancelled or the run is closed.

        Args:
            live: what becomes of the call if no outcome is recorded.
        """
        if not self.gate.is_open(branch):
            raise await self.gate.refusal()
        if self._is_concurrent(branch):
            self.turnstile.concurrent()
        step = self.recorded.get(call.path)
        there = step or self.claimed.get(call.path)
        drift = None if there is None else fit.drift(self.run_id, call, there)
        if drift is not None:
            self.tell("drift", call)
            self.gate.close(drift)
            raise await self.gate.refusal()
        if step is None:
            return await live()
        if step.outcome == "abandoned":
            raise await self._until_cancelled(call, branch)
        return step, await self._hand_over(call, step, branch)

    def _is_concurrent(self, branch: Scope) -> bool:
        """Whether other calls may be under way beside one made in this branch."""
        if branch.prefix or len(branch.unfinished) > 1:
            return True
        return branch.owner > 0 and strand() != branch.owner

    # -- recorded ---------------------------------------------------------------------------------

    async def _hand_over(self, call: Call[Any], step: Step, branch: Scope) -> object:
        value = await self._decoded(call, step)
        event = self.turnstile.recorded_turn(call.path)
        if event is None:
            await self.cancellations.let_tasks_begin()
        else:
            await self.cancellations.wait(event, branch)
        await self.gate.check_open(branch)
        for name, published in step.published.items():
            self.publishing.put(name, published)
        self.tell("replay", call, step)
        return value

    async def _decoded(self, call: Call[Any], step: Step) -> object:
        try:
            return fit.decoded(call, step)
        except values.Undecodable as e:
            self.gate.close(fit.undecodable(self.run_id, call, step, e))
        raise await self.gate.refusal()

    async def _until_cancelled(self, call: Call[Any], branch: Scope) -> BaseException:
        """Replay of an abandoned call: it waits for the same cancellation, then for its turn."""
        self.turnstile.expect_cancellation(call.path)
        try:
            with self.gate.wait(branch, shield=False):
                await self.cancellations.raise_owed()
                await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class() as cancelled:
            if self.gate.is_open(branch):
                event = self.turnstile.recorded_turn(call.path)
                if event is not None:
                    await self.cancellations.wait(event, branch)
            await self.gate.check_open(branch)
            return cancelled
        await self.gate.check_open(branch)
        raise AssertionError("nothing but closing ends this wait")

    # -- live -------------------------------------------------------------------------------------

    async def step(self, call: StepCall[Any], branch: Scope) -> tuple[Step, object]:
        """The live course of a step: its body in flight, then its record."""

        def body() -> Outcome:
            self.in_flight.begins(call.path)
            return (self.bodies.outcome if call.stored is None else self._undoable)(call, branch)

        outcome = await self.live(call, branch, body)
        if self.undoing.registered:
            self.undoing.came_to(outcome[0])
        return outcome

    async def _undoable(self, call: StepCall[Any], branch: Scope) -> tuple[Step, object]:
        await self.undoing.register(call, branch)
        await self.gate.check_open(branch)
        await self.cancellations.raise_owed()
        await anyio.lowlevel.checkpoint_if_cancelled()
        return await self.bodies.outcome(call, branch)

    async def live(
        self,
        call: Call[Any],
        branch: Scope,
        body: Callable[[], Outcome],
        *,
        record: Record | None = None,
    ) -> tuple[Step, object]:
        """The live course of a call.

        Args:
            body: comes to the outcome, which is not recorded yet. It may be cancelled.
            record: makes the outcome last and returns in the call's turn; by default it is a
                record of its own (`steps/<path>`).
        """
        outcome: tuple[Step, object] | None = None
        cancelling = self.cancelling
        try:
            with self.gate.wait(branch, shield=False) as wait:
                await self.start_turn(call, branch)
                if not cancelling.covers(call):
                    cancelling.open[call.path] = OpenCall(call, wait)
                    try:
                        outcome = await body()
                    finally:
                        del cancelling.open[call.path]
                    if record is None and wait.shield():
                        # The usual case: the record is written in the same scope, which has its
                        # price. What closes the run or the branch ends this wait, too.
                        outcome[0].cleanup = cancelling.cleans_up(call)
                        await self.record_in_turn(call, outcome[0], branch, shielded=True)
                        return outcome
            if not self.gate.is_open(branch):
                raise await self.gate.refusal()
        except anyio.get_cancelled_exc_class():
            # An event loop that ends cancels every task at once: the run hears of it too, and
            # is closed, before this turn is over.
            await self.cancellations.let_tasks_begin()
            self.in_flight.ends(call.path)
            if self.gate.is_open(branch):
                # User code cancelled it (a bare timeout, a failing sibling): replay must cancel
                # it in the same place, so that is an outcome too.
                await self.record_in_turn(call, self.recorder.outcome(call, "abandoned"), branch)
            raise
        else:
            if outcome is None:
                self.in_flight.begins(call.path)
                cancelling.claims()
                outcome, record = (self.recorder.outcome(call, "cancelled"), None), None
            outcome[0].cleanup = cancelling.cleans_up(call)
            await (record or self.record_in_turn)(call, outcome[0], branch)
            return outcome
        finally:
            self.in_flight.ends(call.path)

    async def start_turn(self, call: Call[Any], branch: Scope) -> None:
        """Returns when what is not recorded of this call may start."""
        event = self.turnstile.start_turn()
        if event is not None:
            await event.wait()
            await self.gate.check_open(branch)
        if self.around.replay_only and not self._has_slept(call):
            self.tell("unrecorded", call)
            self.gate.close(Stopped("replayed", path=call.path))
            await self.gate.check_open(branch)
        if call.grouped or self.recorder.groups.pending() is not None:
            await self._wait_for_groups(call, branch)
        if self.cancellations.owed:
            await self.cancellations.raise_owed()
        await anyio.lowlevel.checkpoint_if_cancelled()
        if self.in_flight.draining:
            await self.in_flight.wait_for_the_end()

    async def _wait_for_groups(self, call: Call[Any], branch: Scope) -> None:
        """Whatever others may see of this call follows from recorded outcomes alone."""
        groups = self.recorder.groups
        if call.grouped:
            await turn()  # others have theirs, though this run waits for no store
        event = groups.full() if call.grouped else groups.pending()
        if event is not None:
            await event.wait()
            await self.gate.check_open(branch)

    def _has_slept(self, call: Call[Any]) -> bool:
        """Whether it is a sleep that is over: the last of a run leaves no other trace."""
        wait = self.claimed.get(call.path) if call.kind == "sleep" else None
        return wait is not None and (wait.due or 0.0) <= self.around.store.now()

    async def record_in_turn(
        self, call: Call[Any], step: Step, branch: Scope, *, shielded: bool = False
    ) -> None:
        """Record the outcome; returns when it is the call's turn to see it.

        That of a grouped call is recorded later, with others. For a call of an open branch.

        Args:
            shielded: as of `Recorder.write_outcome`.
        """
        if call.grouped:
            step.n = self.turnstile.issue()
            self.recorder.groups.add(step)
            await self.pass_turn(self.turnstile.live_turn(step.n), branch)
            return
        self.recorder.in_order(step, self.turnstile.issue())
        try:
            await self.recorder.write_outcome(step, branch, shielded=shielded)
            self.around.recorded(self.run_id)
            if self.around.observe is not None:
                self.tell("record", call, step)
        finally:
            event = self.turnstile.live_turn(step.n)  # in any case: others wait behind it
        if event is not None:
            await self.pass_turn(event, branch)

    async def pass_turn(self, turn: anyio.Event | None, branch: Scope) -> None:
        """Wait for a turn that the turnstile gave, whatever user code cancels."""
        if turn is not None:
            await self.cancellations.wait(turn, branch)
        await self.gate.check_open(branch)

    def tell(self, kind: str, call: Call[Any], step: Step | None = None) -> None:
        """Tell whoever watches of the call's progress."""
        if self.around.observe is not None:
            self.around.observe(self.run_id, Progress.of(kind, call.path, call.name, step))
