"""One held run, from the take to the moment its marker is let go.

The steps of its way are in `opening`, `admission`, `execution`, `finishing` and `leaving`; which
of them comes next is decided here.
"""

from __future__ import annotations

import logging
from functools import partial

import anyio

from durable.errors import CrashLoop, RunCancelled, StoreError
from durable.protocol import failures, values
from durable.protocol.records import Cancel, Result
from durable.runtime import finishing, fit, leaving, markers, opening, timers, undoing
from durable.runtime.admission import Admission, Admitted, Queued, Turned
from durable.runtime.cancelling import message
from durable.runtime.children import cancel_orphan
from durable.runtime.closing import Attention, Finished, LateRecord, Parked, Stopped, corrupt
from durable.runtime.custody import Custody, Work
from durable.runtime.debouncing import Changed
from durable.runtime.definitions import WorkflowDefinition, Workflows, code_for
from durable.runtime.execution import Execution
from durable.runtime.facts import CorruptFact, Facts
from durable.runtime.flags import read as read_flag
from durable.runtime.flags import unflag
from durable.runtime.markers import Held

log = logging.getLogger("durable")

PATHS_SHOWN = 10


class Runner:
    """Carries one run that this worker holds.

    Attributes:
        result: its outcome, once it is over.
        refusal: what the store refused for good, if it was stopped for that.
        pursued: somebody waits for it here, and raises `refusal`.
        parked: until when, once it is.
        gone: set when the worker does not carry the run any more.
    """

    def __init__(self, custody: Custody, workflows: Workflows) -> None:
        self.result: Result | None = None
        self.refusal: StoreError | None = None
        self.pursued = False
        self.parked: Parked | None = None
        self.gone = anyio.Event()
        self.run = custody.run
        self._custody = custody
        self._workflows = workflows
        self._hopeless: Attention | None = None  # why the run ends without its code
        self._stop: Stopped | None = None
        self._draining = False

    @property
    def held(self) -> Held:
        """Its marker."""
        return self._custody.held

    @property
    def last(self) -> Work | None:
        """What remains to be done once `carry` has returned; nobody waits for it."""
        return self._custody.last

    @property
    def execution(self) -> Execution | None:
        """Of the present epoch, once it has begun."""
        return self._custody.execution

    def stop(self, why: Stopped) -> None:
        """Unwind now; nothing is recorded."""
        self._stop = self._stop or why
        self._custody.solitude.changed()
        if self.execution is not None:
            self.execution.close(why)

    def fail(self, error: StoreError) -> None:
        """The store refused what must be written."""
        self.refusal = self.refusal or error  # the first says what could not be recorded
        self.stop(Stopped("store", error=error))

    def drain(self) -> None:
        """Stop as soon as no body is in flight; no further body starts."""
        self._draining = True
        self._custody.solitude.changed()
        if self.execution is not None:
            self.execution.drain()

    def _is_leaving(self) -> bool:
        return self._draining or self._stop is not None

    def touched(self) -> None:
        """Somebody changed the marker since we wrote it: there may be a new fact.

        The caller has learned the marker's present generation before; so what is looked at now
        counts as looked at since (see `markers`).
        """
        if self.execution is not None and self.execution.closing is None:
            self.execution.looking.touched()
        else:
            self._custody.touched = True  # what was looked at before may have missed it

    async def carry(self) -> None:
        """Until the run has ended, is parked, or is somebody else's."""
        while not await self._carry_once():
            pass

    def over(self) -> None:
        """Nothing remains to be done for it in this process."""
        self._custody.over()

    # -- before its code --------------------------------------------------------------------------

    async def _carry_once(self) -> bool:
        """One epoch; True when the run is off our hands."""
        custody = self._custody
        custody.execution, custody.touched = None, False  # what follows is a look of its own
        here = self.held.fresh  # started in this process, by a parent that goes on
        try:
            facts = await opening.read_facts(custody)
        except CorruptFact as e:
            return await self._ask_for_attention(None, corrupt(f"run {self.run!r}: {e}"))
        if facts.start.tombstone:  # purged: what a late wake has left is cleared away
            custody.drop_timer()
            if self.held.marker.flagged:  # else other code would wake it again and again
                await unflag(custody.store, self.held.marker.queue, self.run)
            finishing.delete_marker(custody)
            return True
        if facts.start.queue != self.held.marker.queue:
            await leaving.send_home(custody, facts)
            return True
        if facts.result is not None:
            custody.drop_unneeded(facts)
            return await self._settle(facts, facts.result)
        if facts.cancel is None and not here:
            facts.cancel = await cancel_orphan(custody.store, self.run, facts.start)
        if facts.cancel is not None and facts.fresh and self.held.first:
            # Nobody has begun it, so there is nothing to clean up.
            custody.drop_unneeded(facts)
            failure = failures.from_exception(RunCancelled(message(self.run, facts.cancel)))
            return await self._end(facts, finishing.of_turned(Turned(failure, cancelled=True)))
        definition = code_for(self._workflows, facts.start)
        if definition is None or self._is_leaving():
            await custody.give_back()
            return True
        return await self._admit(facts, definition)

    async def _admit(self, facts: Facts, definition: WorkflowDefinition) -> bool:
        custody = self._custody
        try:
            answer = await Admission(
                custody.store, self.run, facts, custody.lines, self.held.marker.slot,
                clean=self.held.clean,
            ).ask()  # fmt: skip
        except CorruptFact as e:
            return await self._ask_for_attention(facts, corrupt(str(e)))
        if isinstance(answer, Parked):
            instance = facts.start.instance
            custody.drop_unneeded(
                facts, keep=timers.name_of(self.run, instance, answer.path, answer.due)
            )
            return await self._park(facts, answer)
        custody.drop_unneeded(facts)
        match answer:
            case Turned() as turned:
                return await self._end(facts, finishing.of_turned(turned))
            case Changed():
                return False
            case Queued():
                return await leaving.stand_in_line(custody, facts)
            case Admitted(waited, place):
                custody.place = place
                if waited is not None:
                    custody.passed(facts, waited)
        # What a run is asked to do, and by which version, may have changed until it was admitted.
        return await self._begin(facts, code_for(self._workflows, facts.start) or definition)

    async def _begin(self, facts: Facts, definition: WorkflowDefinition) -> bool:
        try:
            args, kwargs = self._arguments(facts, definition)
        except values.Undecodable as e:
            said = f"the input of run {self.run!r} does not fit {definition.name!r}: {e}"
            attention = Attention("undecodable", said, fit.MISFIT_HINT)
            return await self._stuck(facts, facts.cancel, attention)
        journal = facts.journal()
        epoch = await opening.claim_epoch(
            self._custody, facts, journal, self._is_leaving, self._deaths_max(facts)
        )
        if isinstance(epoch, Attention):
            if definition.on_crash_loop == "fail" and self._hopeless is None:
                self._hopeless = epoch
                return False
            return await self._ask_for_attention(facts, epoch)
        if epoch is None:
            await self._custody.give_back(why="takeover")  # it stays as suspicious as it was
            return True
        if epoch == opening.LIST_AGAIN:
            return False
        execution = Execution(
            around=self._custody.around, definition=definition, run_id=self.run,
            instance=facts.start.instance, epoch=epoch, journal=journal, args=args, kwargs=kwargs,
            deadline=facts.start.deadline, version=facts.start.workflow_version,
            origin=facts.start.first(), forks=facts.start.forks, cancel=facts.cancel,
            tick=facts.start.tick, takes=facts.takes, events=facts.events,
            passed=lambda wait: self._custody.passed(facts, wait),
            undos=undoing.by_path(facts.undos), over=self._given_up(facts.cancel),
        )  # fmt: skip
        await self._execute(execution)
        return await self._act_on(execution, facts, epoch)

    def _deaths_max(self, facts: Facts) -> int:
        """A run that is to fail for its deaths may die as often while it is undone."""
        failing = self._hopeless is not None and facts.cancel is None
        return opening.SOLITARY_DEATHS_MAX * (2 if failing else 1)

    def _arguments(
        self, facts: Facts, definition: WorkflowDefinition
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        if self._hopeless is not None:
            return (), {}  # the function does not run
        return values.decode_call(facts.start.input, definition.signature, definition.hints)

    def _given_up(self, asked: Cancel | None) -> Finished | None:
        """What a run comes to whose code cannot go on: it is cancelled, or is to fail for that."""
        if self._hopeless is None:
            return None
        if asked is None:
            crashed = CrashLoop(self._hopeless.message, hint=self._hopeless.hint, run=self.run)
            return Finished(failure=failures.from_exception(crashed))
        error = RunCancelled(message(self.run, asked))
        error.add_note(f"its own clean-up could not run: {self._hopeless.message}")
        return Finished(cancelled=True, failure=failures.from_exception(error))

    # -- its code ---------------------------------------------------------------------------------

    async def _execute(self, execution: Execution) -> None:
        self._custody.execution = execution
        if self._stop is not None:
            execution.close(self._stop)
        elif self._draining:
            execution.drain()
        if self._custody.touched:
            self._custody.touched = False
            execution.looking.touched()
        self._custody.spawn(partial(execution.run_to_end, self._custody.spawn))
        await execution.end()

    # -- after it ---------------------------------------------------------------------------------

    async def _act_on(self, execution: Execution, facts: Facts, epoch: int) -> bool:
        match await execution.conclude():
            case Finished() as finished:
                if not finished.ran_out:
                    self._warn_of_unasked(execution.turnstile.remaining())
                await execution.publishing.flush()
                return await self._end(facts, finishing.of_finished(finished, epoch))
            case Attention() as attention:
                return await self._stuck(facts, execution.cancelling.asked, attention)
            case Parked() as parked:
                return await self._park(facts, parked)
            case LateRecord():
                # Of an owner before us, or of one after, whom nobody has told us of yet.
                marker = await self._custody.store.read(self.held.name)
                if not markers.names_take(marker, self.held):
                    return True
                self._custody.why = "late"
                return False
            case Stopped("store") as stopped:
                self.refusal = stopped.error
                await self._custody.give_back()
            case Stopped("drain"):
                await self._custody.give_back()
        return True

    def _warn_of_unasked(self, paths: list[str]) -> None:
        """Removing a call is allowed; doing so by accident should not go unnoticed."""
        if paths:
            log.warning(
                "run %r is over, but its code did not ask for recorded calls: %s",
                self.run,
                ", ".join(paths[:PATHS_SHOWN]),
            )

    async def _end(self, facts: Facts, result: Result) -> bool:
        return await self._settle(facts, await finishing.record(self._custody, facts, result))

    async def _settle(self, facts: Facts, result: Result) -> bool:
        self.result = result
        await finishing.settle(self._custody, facts, result)
        return True

    async def _park(self, facts: Facts, parked: Parked) -> bool:
        if await leaving.park(self._custody, facts, parked):
            self.parked = parked
            return True
        self._custody.why = "wake"
        return False

    async def _stuck(self, facts: Facts, asked: Cancel | None, attention: Attention) -> bool:
        """Its code cannot go on: a human or other code must decide.

        If somebody has decided to cancel it, and it was stuck before, it ends without its code.
        """
        if asked is not None:
            hint = await read_flag(self._custody.store, facts.start.queue, self.run)
            if hint is not None and hint.instance == facts.start.instance:
                self._hopeless = attention
                return False
        return await self._ask_for_attention(facts, attention)

    async def _ask_for_attention(self, facts: Facts | None, attention: Attention) -> bool:
        await leaving.ask_for_attention(self._custody, facts, attention)
        return True
