"""One held run, from the take to the moment its marker is let go."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import msgspec

from durable.errors import RunCancelled, StoreError
from durable.protocol import failures, moments, names, records, values
from durable.protocol.journal import Journal, seen, suspicion
from durable.protocol.queues import SLOT_PATH
from durable.protocol.records import Cancel, Epoch, History, Result, Start, Status, Wait
from durable.protocol.singletons import ending
from durable.runtime import admission, fit, markers, singletons, timers, undoing
from durable.runtime.admission import Admission, Admitted, Place, Queued, Turned
from durable.runtime.cancelling import message
from durable.runtime.children import cancel_open, cancel_orphan, owned_in, unsure_in, wake_parent
from durable.runtime.closing import Attention, Finished, LateRecord, Parked, Stopped, corrupt
from durable.runtime.definitions import WorkflowDefinition, Workflows
from durable.runtime.execution import Execution
from durable.runtime.facts import CorruptFact, Facts, decode_result, load
from durable.runtime.flags import flag, unflag
from durable.runtime.flags import read as read_flag
from durable.runtime.lines import Lines
from durable.runtime.markers import Held
from durable.runtime.solitude import Solitude
from durable.runtime.surroundings import Progress, Surroundings
from durable.store import Refused

log = logging.getLogger("durable")

Work = Callable[[], Coroutine[Any, Any, object]]
Why = Literal["wake", "takeover", "drain", "late"]

PATHS_SHOWN = 10
LIST_AGAIN = 0  # no epoch
SOLITARY_DEATHS_MAX = 5  # then the run needs attention: it kills whatever resumes it


@dataclass(kw_only=True)
class Runner:
    """Carries one run that this worker holds.

    Attributes:
        worker: the id under which the worker holds its lease.
        version: the code version that stands in attention hints.
        gone: set when the worker does not carry the run any more.
        spawn: starts a task of the worker.
        spawn_last: the same for the last thing done for a run; it ends with the lease.
        parked: until when, once it is.
        lines: what the worker knows of its queues.
        place: its slot, if its queue is limited and it has one.
    """

    around: Surroundings
    workflows: Workflows
    worker: str
    label: str
    version: str
    solitude: Solitude
    lines: Lines
    spawn: Callable[[Work], None]
    spawn_last: Callable[[Work], None]
    held: Held
    why: Why
    execution: Execution | None = None
    result: Result | None = None
    refusal: Stopped | None = None  # the store refused a write for good
    attention: Attention | None = None
    hopeless: Attention | None = None  # why a cancelled run ends without its code
    gone: anyio.Event = field(default_factory=anyio.Event)
    parked: Parked | None = None
    place: Place | None = None
    _stop: Stopped | None = None
    _draining: bool = False
    _touched: bool = False

    @property
    def run(self) -> str:
        return self.held.marker.run

    def stop(self, why: Stopped) -> None:
        """Unwind now; nothing is recorded."""
        self._stop = self._stop or why
        self.solitude.changed()
        if self.execution is not None:
            self.execution.close(why)

    def fail(self, error: StoreError) -> None:
        """The store refused what must be written."""
        self.refusal = Stopped("store", error=error)
        self.stop(self.refusal)

    def drain(self) -> None:
        """Stop as soon as no body is in flight; no further body starts."""
        self._draining = True
        self.solitude.changed()
        if self.execution is not None:
            self.execution.drain()

    def touched(self) -> None:
        """Somebody changed the marker since we wrote it: there may be a new fact.

        The caller has learned the marker's present generation before; so what is looked at now
        counts as looked at since (see `markers`).
        """
        if self.execution is not None and self.execution.closing is None:
            self.execution.touched()
        else:
            self._touched = True  # what was looked at before may have missed it

    async def carry(self) -> None:
        """Until the run has ended, is parked, or is somebody else's."""
        try:
            while not await self._carry_once():
                pass
        finally:
            self.solitude.leave(self.run)

    async def _carry_once(self) -> bool:
        """One epoch; True when the run is off our hands."""
        self.execution, self._touched = None, False  # what follows is a look of its own
        here = self.held.fresh  # started in this process, by a parent that goes on
        try:
            facts = await self._facts()
        except CorruptFact as e:
            return await self._park(None, corrupt(f"run {self.run!r}: {e}"))
        if facts.start.tombstone:  # purged: what a late wake has left is cleared away
            if self.held.marker.timer:
                self._drop(self.held.marker.timer)
            self.spawn_last(self._delete_marker)
            return True
        if facts.start.queue != self.held.marker.queue:
            return await self._send_home(facts)
        self._drop_timer_unless(facts)
        if facts.result is not None:
            return await self._finish(facts, facts.result)
        if facts.cancel is None and not here:
            facts.cancel = await cancel_orphan(self.around.store, self.run, facts.start)
        if facts.cancel is not None and facts.fresh and self.held.first:
            # Nobody has begun it, so there is nothing to clean up.
            failure = failures.from_exception(RunCancelled(message(self.run, facts.cancel)))
            ended = Turned(failure, cancelled=True)
            return await self._finish(facts, await self._record(facts, _of_turned(ended)))
        definition = self._code_for(facts.start)
        if definition is None or self._is_leaving():
            return await self._give_back()
        return await self._admit(facts, definition)

    def _code_for(self, start: Start) -> WorkflowDefinition | None:
        known = self.workflows.get(start.workflow)
        if known is None:
            return None
        return known.for_runs_of(start.workflow_version, pinned=start.pinned)

    async def _admit(self, facts: Facts, definition: WorkflowDefinition) -> bool:
        try:
            answer = await Admission(
                self.around.store, self.run, facts, self.lines, self.held.marker.slot
            ).ask()
        except CorruptFact as e:
            return await self._park(facts, corrupt(str(e)))
        match answer:
            case Turned() as turned:
                return await self._finish(facts, await self._record(facts, _of_turned(turned)))
            case Parked() as parked:
                return await self._park_waiting(facts, parked)
            case Queued():
                return await self._stand_in_line(facts)
            case Admitted(waited, place):
                self.place = place
                if waited is not None:
                    self._passed(facts, waited)
        return await self._execute(facts, definition)

    # -- before -----------------------------------------------------------------------------------

    async def _facts(self) -> Facts:
        """What is recorded; a missing `start` is created from the marker's request."""
        marker, store = self.held.marker, self.around.store
        if self.held.fresh and marker.request is not None:
            self.held.fresh = False
            return Facts(marker.request)
        while (facts := await load(store, self.run)) is None:
            if marker.request is None:
                raise CorruptFact(names.start(self.run), "it is missing")
            body = records.encode(marker.request)
            await store.create(names.start(self.run), body, nonce=marker.request.nonce)
        return facts

    async def _epoch(self, facts: Facts, journal: Journal) -> int | Attention | None:
        """Claim the next epoch; None: the worker was stopped while the run waited to be alone.

        `LIST_AGAIN`: somebody claimed that epoch since our list, and may have seen more than we.
        A claim on top of it with the old list would tell later owners less than is known.

        Without a claim it is the first, if nothing but `start` is there and nobody held the run
        before. An earlier holder may have begun and recorded nothing yet: it was the first.
        """
        if facts.fresh and self.held.first:
            return 1
        alone = False
        if self.why == "takeover":
            doubt = suspicion(journal.epochs, facts.recorded_epochs())
            deaths = doubt.solitary_deaths
            if facts.cancel is not None:  # what killed them before is not begun again
                later = {n: e for n, e in journal.epochs.items() if e.time >= facts.cancel.time}
                deaths = suspicion(later, facts.recorded_epochs()).solitary_deaths
            if deaths >= SOLITARY_DEATHS_MAX:
                return _crash_loop(self.run, deaths)
            if doubt.alone:
                alone = True
                if not await self.solitude.wait_alone(self.run, self._is_leaving):
                    return None
        number = max(journal.epochs, default=1) + 1
        claim = Epoch(
            epoch=number, worker=self.worker, label=self.label, why=self.why,
            nonce=self._token(), time=self._now(), seen=seen(facts.outcomes()), alone=alone,
        )  # fmt: skip
        name = names.epoch(self.run, facts.start.instance, number)
        body = records.encode(claim)
        written = await self.around.store.create(name, body, nonce=claim.nonce)
        return LIST_AGAIN if isinstance(written, Refused) else number

    # -- during -----------------------------------------------------------------------------------

    async def _execute(self, facts: Facts, definition: WorkflowDefinition) -> bool:
        try:
            args, kwargs = self._arguments(facts, definition)
        except values.Undecodable as e:
            said = f"the input of run {self.run!r} does not fit {definition.name!r}: {e}"
            return await self._stuck(
                facts, facts.cancel, Attention("undecodable", said, fit.MISFIT_HINT)
            )
        journal = facts.journal()
        epoch = await self._epoch(facts, journal)
        if isinstance(epoch, Attention):
            return await self._park(facts, epoch)
        if epoch is None:
            return await self._give_back(why="takeover")  # it stays as suspicious as it was
        if epoch == LIST_AGAIN:
            return False
        self.execution = Execution(
            around=dataclasses.replace(self.around, observe=self._observe),
            definition=definition, run_id=self.run, instance=facts.start.instance,
            epoch=epoch, journal=journal, args=args, kwargs=kwargs,
            deadline=facts.start.deadline, version=facts.start.workflow_version,
            origin=facts.start.first(), cancel=facts.cancel, tick=facts.start.tick,
            takes=facts.takes, events=facts.events,
            passed=lambda wait: self._passed(facts, wait),
            undos=undoing.by_path(facts.undos), over=self._given_up(facts.cancel),
        )  # fmt: skip
        if self._stop is not None:
            self.execution.close(self._stop)
        elif self._draining:
            self.execution.drain()
        if self._touched:
            self._touched = False
            self.execution.touched()
        self.spawn(self.execution.run_to_end)
        await self.execution.ended.wait()
        return await self._act_on(facts, epoch)

    def _arguments(
        self, facts: Facts, definition: WorkflowDefinition
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        if self.hopeless is not None:
            return (), {}  # the function does not run
        return values.decode_call(facts.start.input, definition.signature, definition.hints)

    def _given_up(self, asked: Cancel | None) -> Finished | None:
        """What a cancelled run comes to whose code cannot go on."""
        if self.hopeless is None:
            return None
        error = RunCancelled(message(self.run, asked))
        error.add_note(f"its own clean-up could not run: {self.hopeless.message}")
        return Finished(cancelled=True, failure=failures.from_exception(error))

    def _is_leaving(self) -> bool:
        return self._draining or self._stop is not None

    def _observe(self, run: str, progress: Progress) -> None:
        if progress.kind in {"record", "retry"}:
            self.solitude.end(run)
        self.around.observe(run, progress)

    async def _act_on(self, facts: Facts, epoch: int) -> bool:
        assert self.execution is not None
        match self.execution.closing:
            case Finished() as finished:
                if not finished.ran_out:
                    self._warn_of_unasked(self.execution.turnstile.remaining())
                await self.execution.publishing.flush()
                ended = _of_finished(finished, epoch)
                return await self._finish(facts, await self._record(facts, ended))
            case Attention() as attention:
                return await self._stuck(facts, self.execution.cancelling.asked, attention)
            case Parked() as parked:
                return await self._park_waiting(facts, parked)
            case LateRecord():
                # Of an owner before us, or of one after, whom nobody has told us of yet.
                if not markers.names_take(await self.around.store.read(self.held.name), self.held):
                    return True
                self.why = "late"
                return False
            case Stopped("store") as stopped:
                self.refusal = stopped
                log.error("run %r stops here: %s", self.run, stopped.error)
                return await self._give_back()
            case Stopped("drain"):
                return await self._give_back()
        return True

    def _warn_of_unasked(self, paths: list[str]) -> None:
        """Removing a call is allowed; doing so by accident should not go unnoticed."""
        if paths:
            log.warning(
                "run %r is over, but its code did not ask for recorded calls: %s",
                self.run,
                ", ".join(paths[:PATHS_SHOWN]),
            )

    # -- after ------------------------------------------------------------------------------------

    async def _record(self, facts: Facts, result: Result) -> Result:
        result = msgspec.structs.replace(result, nonce=self._token(), time=self._now())
        name = names.result(self.run, facts.start.instance)
        body = records.encode(result)
        written = await self.around.store.create(name, body, nonce=result.nonce)
        if isinstance(written, Refused) and written.current is not None:
            return decode_result(written.current)
        return result

    async def _finish(self, facts: Facts, result: Result) -> bool:
        """What an ended run still owes; each part is idempotent and redone by whoever comes."""
        start, store = facts.start, self.around.store
        self.result = result
        entry = History.of(self.run, start, result, why=ending(result), nonce=self._token())
        name = names.history(moments.stamp(result.time), self.run)
        await store.create(name, records.encode(entry), nonce=entry.nonce)
        if start.parent is not None:
            await wake_parent(self.around.store, start.parent)
        await self._cancel_children(facts)
        if self.held.marker.flagged or not facts.fresh:
            await unflag(store, start.queue, self.run)
        await self._give_up_place(start)
        await singletons.end(store, self.run, start, admission.lock_wait(facts))
        for wait in facts.waiting():
            self._passed(facts, wait)
        if not facts.fresh:
            self._drop(timers.name_of(self.run, start.instance, "", None))
        if start.deadline and not facts.fresh:
            self._drop(timers.name_of(self.run, start.instance, "", start.deadline))
        self.spawn_last(self._delete_marker)
        return True

    async def _cancel_children(self, facts: Facts) -> None:
        owned, instance = owned_in(facts.steps), facts.start.instance
        unsure = unsure_in(self.run, instance, facts.steps)
        if self.execution is not None:
            children = self.execution.children
            owned = {
                run: child
                for run, child in {**owned, **children.owned}.items()
                if run not in children.ended
            }
            unsure |= children.unsure
        await cancel_open(self.around.store, self.run, instance, owned, unsure)

    async def _delete_marker(self) -> None:
        """Not waited for: deletes of one name are limited to one a second in a bucket."""

        async def look() -> bool:
            facts = await load(self.around.store, self.run)
            return facts is not None and facts.result is None and not facts.start.tombstone

        if not await self._let_go(look):
            await self._give_back()

    # -- waiting ----------------------------------------------------------------------------------

    async def _park_waiting(self, facts: Facts, parked: Parked) -> bool:
        """All that the run does is to wait: a hint says until when, and the marker goes.

        Whoever woke the run since we last looked has touched the marker: then it goes on here.
        """
        if timers.is_past(self.held.marker, self._now()):
            self._drop(self.held.marker.timer)  # it was of a wait that a decision has closed
        if self.execution is not None:
            await self.execution.publishing.flush()
        await timers.put(self.around.store, self.held.marker, facts.start.instance, parked)
        if self.place is not None and not self.place.slots.settings.keep_slot:
            await self._give_up_place(facts.start)

        async def touched() -> bool:
            return True

        if await self._let_go(touched):
            self.parked = parked
            return True
        self.why = "wake"
        return False

    async def _stand_in_line(self, facts: Facts) -> bool:
        """Whoever dispatches the queue wakes the run once it has a slot."""
        if facts.fresh:
            # A marker may only go once a fact other than `start` is there.
            wait = Wait(SLOT_PATH, "slot", facts.start.queue, 0, self._token(), self._now())
            name = names.wait(self.run, facts.start.instance, SLOT_PATH)
            await self.around.store.create(name, records.encode(wait), nonce=wait.nonce)

        async def touched() -> bool:
            return True

        return await self._let_go(touched)

    async def _give_up_place(self, start: Start) -> None:
        """Others may go on: hand the slot to the next, or whatever slot names this instance.

        Under the limits that hold now: they may have changed, and the queue may be paused.
        """
        place, self.place = self.place, None
        asked = start.limited or place is not None
        slots = await self.lines.slots(start.queue, asked=asked)
        if slots is None:
            return
        held = place.held if place is not None else None
        if held is None:
            held = (await slots.all()).held(self.run, start.instance)
        if held is not None:
            await slots.give_up(held, by=self.run)

    def _passed(self, facts: Facts, wait: Wait) -> None:
        """A wait that an earlier owner began is over: nobody needs to wake the run for it."""
        if wait.due is not None:
            self._drop(timers.name_of(self.run, facts.start.instance, wait.path, wait.due))

    def _drop_timer_unless(self, facts: Facts) -> None:
        """Delete the hint that woke the run, unless its wait is still open."""
        waiting = [] if facts.result else facts.waiting()
        if timers.unneeded(self.held.marker, facts.start.instance, waiting):
            self._drop(self.held.marker.timer)

    def _drop(self, name: str) -> None:
        store, marker = self.around.store, self.held.marker
        self.spawn(lambda: timers.drop(store, marker, name))

    # -- letting go -------------------------------------------------------------------------------

    async def _stuck(self, facts: Facts, asked: Cancel | None, attention: Attention) -> bool:
        """Its code cannot go on: a human or other code must decide.

        If somebody has decided to cancel it, and it was stuck before, it ends without its code.
        """
        if asked is not None:
            hint = await read_flag(self.around.store, facts.start.queue, self.run)
            if hint is not None and hint.instance == facts.start.instance:
                self.hopeless = attention
                return False
        return await self._park(facts, attention)

    async def _park(self, facts: Facts | None, attention: Attention) -> bool:
        """The run needs a human or other code: say so, then let the marker go."""
        store, marker = self.around.store, self.held.marker
        log.warning("run %r needs attention: %s", self.run, attention.message)
        self.attention = attention
        if facts is not None and facts.fresh:
            # A marker may only go once a fact other than `start` is there.
            claim = Epoch(1, self.worker, self.label, "wake", self._token(), self._now())
            name = names.epoch(self.run, facts.start.instance, 1)
            await store.create(name, records.encode(claim), nonce=claim.nonce)
        if marker.timer:
            self._drop(marker.timer)  # else it would wake the run for the same trouble
        if facts is not None:
            await self._give_up_place(facts.start)
        await flag(
            store, marker, attention, version=self.version, now=self._now(), token=self._token()
        )

        async def touched() -> bool:
            return True  # somebody woke it for other code meanwhile

        if not await self._let_go(touched):
            await self._give_back()
        return True

    async def _let_go(self, look: Callable[[], Awaitable[bool]]) -> bool:
        """As `markers.let_go`; a touch that we know of already calls for a look first."""
        execution = self.execution
        looked = not self._touched and (execution is None or execution.has_looked)
        if not looked and await look():
            return False
        return await markers.let_go(self.around.store, self.held, look)

    async def _send_home(self, facts: Facts) -> bool:
        """The marker stands in another queue than the run's own: one marker is enough."""
        await markers.wake(self.around.store, self.run, facts.start, nonce=self.around.system.token)

        async def nothing() -> bool:
            return False

        await markers.let_go(self.around.store, self.held, nothing)
        return True

    async def _give_back(self, why: Literal["drain", "takeover"] = "drain") -> bool:
        await markers.give_back(
            self.around.store, self.held, why=why, nonce=self.around.system.token
        )
        return True

    def _now(self) -> float:
        return self.around.store.now()

    def _token(self) -> str:
        return self.around.system.token()


def _of_finished(finished: Finished, epoch: int) -> Result:
    ended: Status = "completed" if finished.failure is None else "failed"
    return Result(
        status="cancelled" if finished.cancelled else ended, nonce="", epoch=epoch, time=0.0,
        value=finished.value, failure=finished.failure,
    )  # fmt: skip


def _of_turned(turned: Turned) -> Result:
    ended: Status = "completed" if turned.failure is None else "failed"
    return Result(
        status="cancelled" if turned.cancelled else ended, nonce="", epoch=1, time=0.0,
        failure=turned.failure, skipped=turned.skipped, joined=turned.joined,
    )  # fmt: skip


def _crash_loop(run: str, deaths: int) -> Attention:
    return Attention(
        "crash-loop",
        f"run {run!r} was alone in {deaths} processes that died without recording anything: "
        "one of its steps probably kills its process",
        hint="look at the logs of its last workers; mend the step and deploy, or `durable retry` "
        "the run where there is more memory",
    )
