"""One owner's execution of one run: the function from the top, with its recorded past.

A call whose outcome is recorded returns it; otherwise its body runs and the outcome is recorded
before anybody sees it (promise P1). What the workflow receives is always the decoded copy.

An execution ends by itself (`Finished`) or is closed from outside or by what it finds: from that
moment its context is closed, every durable call raises the cancellation again, and what the
function then returns or raises is ignored (promise P6).

It is made of parts, each of which has a module:

- `performing`: the course of one call; `fit`: whether the record fits it; `bodies`: attempts and
  back-off; `invoking`: one attempt; `recording`: records and their writes, `grouping` those of
  several outcomes; `riding`: what has no record of its own;
- `gate`: open or closed, and all that waits; `cancellations`: those that user code makes while a
  call must not be interrupted; `inflight`: what a draining run waits for;
- `looking`: what others leave for it meanwhile;
- `cancelling`: the cancellation of the run itself, and `cleanup`: what it may still do;
- `function`: the workflow function, `undoing`: what becomes of its steps if it does not
  complete, `limits`: the times that cut it short;
- `turnstile`: the order in which outcomes reach the function;
- `waits`: sleeps, events, deadlines; `inbox`: decisions that compete; `parking`: whether all that
  the run does is to wait, so that it need not be here;
- `threads`: sync code; `inside`: a body as its own code sees the run; `publishing`: progress that
  others may see; `latest`: the objects that hold it, each overwritten by one owner alone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, TypeVar

import anyio
import anyio.abc
import msgspec

from durable.errors import UsageError
from durable.protocol import failures
from durable.protocol.journal import Journal
from durable.protocol.records import Cancel, Fork, Origin, Step, Take, Undo, Wait
from durable.runtime import cleanup
from durable.runtime.bodies import Bodies
from durable.runtime.calls import Call, StepCall
from durable.runtime.cancellations import Cancellations
from durable.runtime.cancelling import Cancelling
from durable.runtime.chance import Chance, Share
from durable.runtime.children import Children
from durable.runtime.closing import Closing, Finished, LateRecord, Stopped
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.function import Function
from durable.runtime.gate import Gate
from durable.runtime.grouping import Groups
from durable.runtime.helpers import Helpers, Work
from durable.runtime.inbox import Inbox
from durable.runtime.inflight import InFlight
from durable.runtime.invoking import Invoker
from durable.runtime.latest import Keeper
from durable.runtime.limits import Limits
from durable.runtime.looking import Looking
from durable.runtime.ownership import Ownership
from durable.runtime.parking import Parking
from durable.runtime.patches import Patches
from durable.runtime.performing import Performer
from durable.runtime.publishing import Publishing
from durable.runtime.recording import Recorder
from durable.runtime.riding import Riders
from durable.runtime.scopes import Current, Scope, executing, in_this_process
from durable.runtime.stragglers import Stragglers
from durable.runtime.surroundings import Surroundings
from durable.runtime.threads import Threads
from durable.runtime.threadwatch import ThreadWatch
from durable.runtime.turns import turn
from durable.runtime.turnstile import Turnstile
from durable.runtime.undoing import Undoing
from durable.runtime.waits import Waits
from durable.store import Stored

T = TypeVar("T")

log = logging.getLogger("durable")


class Execution:
    """See the module's docstring. `run_to_end()` in a task of its own; `closing` then tells.

    Args:
        args: of the workflow function, decoded; `kwargs` as well.
        deadline: when the run fails unless it is over, in store time; 0: never.
        origin: the instance that the record was first made in, and when; default: this one.
        forks: by which it came to this instance, the earliest first.
        version: of the workflow, as the run was started.
        cancel: the cancellation that was asked for before.
        tick: of the schedule that started the run; 0: none did.
        takes: decisions that earlier owners recorded; `events` those that were sent, as listed.
        passed: told of each wait of earlier owners that is over.
        undos: the undo actions that earlier owners registered, by path.
        over: what the run comes to without running its function; what it did is undone.

    Attributes:
        cancelling: the cancellation of this run.
        looking: what others may have left for it meanwhile.
        parking: what stands and what moves.
        turnstile: the order of outcomes; a decision that closes branches tells it.
        ownership: what is stamped on the records.
        spawn: starts a task of the run's own.
        publishing: the progress that it publishes; flushed by its owner at the end.

    What only some runs need is made when it is first asked for: half of what a short run costs
    would else be to make what it does not use.
    """

    def __init__(
        self,
        *,
        around: Surroundings,
        definition: WorkflowDefinition,
        run_id: str,
        instance: str,
        epoch: int,
        journal: Journal,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        deadline: float = 0.0,
        origin: Origin | None = None,
        forks: Iterable[Fork] = (),
        version: str = "",
        cancel: Cancel | None = None,
        tick: float = 0.0,
        takes: Iterable[Take] = (),
        events: Iterable[Stored] = (),
        passed: Callable[[Wait], None] = lambda wait: None,
        undos: Mapping[str, Undo] | None = None,
        over: Finished | None = None,
    ) -> None:
        self.run_id = run_id
        self._around = around
        self.ownership = Ownership(
            run_id=run_id, instance=instance, workflow=definition.name, epoch=epoch, tick=tick,
            version=version,
        )  # fmt: skip
        self._origin = origin or Origin(instance, 0.0)
        order = [step.path for step in journal.order]
        gate = self._gate = Gate(run_id, around.trusted)
        helpers = self._helpers = Helpers()
        self.spawn = helpers.spawn
        turnstile = self.turnstile = Turnstile(
            order, lambda it: helpers.spawn(partial(_dispatch, run_id, it, gate))
        )
        gate.at_close(turnstile.release)
        self._journal = journal
        self._forks = forks
        self._takes = takes
        self._events = events
        self._passed = passed
        self._deadline = deadline
        self._definition = definition
        self._args = args
        self._kwargs = kwargs
        self._root = Scope(self, "", time=self._origin.created)
        self._over = False  # whether the function's task has come to its end
        self._riders = Riders(journal.open_calls())
        self._groups = Groups(
            around=around, ownership=self.ownership, gate=self._gate, riders=self._riders,
            last=journal.groups, spawn=self.spawn,
        )  # fmt: skip
        gate.at_close(self._groups.release)
        self._cancellations = Cancellations(gate)
        self.cancelling = Cancelling(self.ownership, around.store, cancel, self._on_cancelled)
        gate.at_close(self.cancelling.release)
        in_flight = self._in_flight = InFlight(gate.close)
        self._keeper = Keeper(
            turnstile=turnstile, in_flight=in_flight, groups=self._groups, gate=gate,
            spawn=self.spawn,
        )  # fmt: skip
        self.publishing = Publishing(around, self.ownership, self._keeper)
        self.parking = self._make_parking(around, deadline)
        gate.at_close(self.parking.release)
        self.parking.begins(self._root.strand)
        self._performer = self._make_performer(around, journal, dict(undos or {}), passed)
        self.looking = Looking(self._gate, self.parking.changed, self.spawn)
        self._function = Function(
            definition=definition, root=self._root, gate=self._gate, turnstile=self.turnstile,
            cancelling=self.cancelling, undoing=self._performer.undoing, over=over,
        )  # fmt: skip

    def _make_parking(self, around: Surroundings, deadline: float) -> Parking:
        turnstile = self.turnstile
        return Parking(
            now=around.store.now, deadline=deadline, always=around.always_park,
            crowded=around.crowded,
            activity=lambda: turnstile.activity, forbidden=self._is_busy,
            close=self._gate.close, spawn=self.spawn,
        )  # fmt: skip

    def _is_busy(self) -> bool:
        """Whether something is under way that must not be cut off by a park."""
        return bool(not self.looking.up_to_date or self.inbox.busy or self._in_flight.paths)

    def _make_performer(
        self,
        around: Surroundings,
        journal: Journal,
        undos: dict[str, Undo],
        passed: Callable[[Wait], None],
    ) -> Performer:
        recorded = {step.path: step for step in journal.order}
        recorder = Recorder(
            around=around, ownership=self.ownership, gate=self._gate,
            cancellations=self._cancellations, riders=self._riders, groups=self._groups,
            spawn=self.spawn,
        )  # fmt: skip
        stragglers = Stragglers(around.loop)
        bodies = Bodies(
            around=around, ownership=self.ownership, tried=journal.tried, gate=self._gate,
            in_flight=self._in_flight, cancelling=self.cancelling, recorder=recorder,
            invoker=Invoker(
                around=around, ownership=self.ownership, cancelling=self.cancelling,
                stragglers=stragglers,
            ),
            parking=self.parking, passed=passed,
            publishing=self.publishing, keeper=self._keeper, loop=around.loop,
        )  # fmt: skip
        return Performer(
            around=around, run_id=self.run_id, recorded=recorded,
            claimed=journal.waits, gate=self._gate,
            turnstile=self.turnstile, cancellations=self._cancellations,
            cancelling=self.cancelling, in_flight=self._in_flight, bodies=bodies,
            publishing=self.publishing, recorder=recorder,
            undoing=Undoing(
                recorded=recorded, recorder=recorder, registered=undos,
                limit=self._definition.cleanup_timeout, stragglers=stragglers,
            ),
        )  # fmt: skip

    # -- what only some runs need -----------------------------------------------------------------

    @cached_property
    def inbox(self) -> Inbox:
        """Decisions that compete."""
        return Inbox(
            self._performer, instance=self.instance, takes=self._takes, events=self._events,
            spawn=self.spawn, rests=self.parking.changed,
        )  # fmt: skip

    @cached_property
    def waits(self) -> Waits:
        """Sleeps, events and deadlines."""
        return Waits(
            performer=self._performer, parking=self.parking, inbox=self.inbox,
            passed=self._passed, threads=self.threads,
        )  # fmt: skip

    @cached_property
    def children(self) -> Children:
        """Runs that it has started."""
        return Children(performer=self._performer, parking=self.parking, instance=self.instance)

    @property
    def offspring(self) -> Children | None:
        """The same; None if it never asked for any."""
        made: Children | None = vars(self).get("children")
        return made

    @cached_property
    def chance(self) -> Chance:
        """What `random` and `uuid` draw from."""
        recorded_up_to = self._journal.recorded_up_to
        shares = [Share(recorded_up_to(fork.epoch), fork.instance) for fork in self._forks]
        return Chance(self._origin.instance, shares, self.turnstile.passed)

    @cached_property
    def patches(self) -> Patches:
        """What `patched` decides."""
        return Patches(self._journal.patches, self.turnstile.at_end, self._riders.patched)

    @property
    def threads(self) -> ThreadWatch:
        """Those that run its workflow's code."""
        return self._threads.watch

    @cached_property
    def _threads(self) -> Threads:
        return Threads(self.run_id, self._gate, self.spawn, self._around.workflows)

    @cached_property
    def _limits(self) -> Limits:
        return Limits(
            run_id=self.run_id, deadline=self._deadline, cleanup=self._definition.cleanup_timeout,
            cleaning_since=self._journal.cleaning_since, now=self._around.store.now,
            gate=self._gate, parking=self.parking, function=self._function,
            cancelling=self.cancelling, spawn=self.spawn,
        )  # fmt: skip

    # -- for its owner ----------------------------------------------------------------------------

    @property
    def closing(self) -> Closing | None:
        """Why it ended; None while it goes on."""
        return self._gate.closing

    @property
    def ended(self) -> anyio.Event:
        """Set when nothing of it is left, or when a task that refuses to unwind is left behind."""
        return self._gate.ended

    @property
    def running(self) -> set[str]:
        """Paths of the calls whose bodies or writes are in flight."""
        return self._in_flight.paths

    async def run_to_end(self, start: Callable[[Work], object]) -> None:
        """Run the workflow function; returns when nothing of it is left.

        `ended` may be set earlier: a task that refuses to unwind is left behind.

        Args:
            start: starts a task of the owner's. Those of the run end with it.
        """
        token = executing.set(self)  # for all that begins here
        in_this_process.add(self)
        self._helpers.start = start
        try:
            self.looking.at(self._look)
            self.looking.begin()
            if self._deadline or self.cancelling.asked is not None:
                self._limits.start()
            await self._come_to_end()
            if self._groups.is_sending:
                await turn()  # if that was just answered, it is not cut off and sent again
            await self._helpers.gone()
        finally:
            in_this_process.discard(self)
            executing.reset(token)
        if "_threads" in vars(self):
            self._threads.let_go()
        # Nothing of it refers to itself from here on, so it is freed as soon as nobody needs it.
        # What only a garbage collection finds makes all runs of the process stand still for it.
        self.looking.end()
        vars(self).pop("_limits", None)
        del self._root, self._function

    async def end(self) -> None:
        """Returns when it has ended; a task that refuses to unwind is left behind.

        A cancellation from outside reaches the run here: its function stands under a shield.
        """
        try:
            await self._gate.ended.wait()
        except anyio.get_cancelled_exc_class():
            self.close(Stopped("cancelled"))
            raise
        if not self._over:  # left behind
            self._helpers.end()

    def close(self, why: Closing) -> None:
        """Unwind now; the first reason given counts."""
        self._gate.close(why)

    async def conclude(self) -> Closing | None:
        """Why it ended, once what was only in memory is recorded: then others may be told.

        If that cannot be recorded, this is why it ended.
        """
        closing = self.closing
        interrupted = isinstance(closing, Stopped) and closing.why != "drain"
        if interrupted or isinstance(closing, LateRecord):
            return closing
        return await self._groups.write_rest() or closing

    def drain(self) -> None:
        """Start no further body; close as soon as none is in flight."""
        self._in_flight.drain()

    @property
    def instance(self) -> str:
        """Which instance of the run's id."""
        return self.ownership.instance

    # -- for the code that runs in it -------------------------------------------------------------

    def current(self) -> Current:
        """What the workflow function may know about itself."""
        return Current(self.ownership)

    def perform_step(
        self, call: StepCall[Any], branch: Scope
    ) -> Coroutine[Any, Any, tuple[Step, object]]:
        """The course of a step's call; see `Performer`."""
        performer = self._performer
        return performer.perform(call, branch, lambda: performer.step(call, branch))

    def perform(
        self,
        call: Call[Any],
        branch: Scope,
        live: Callable[[], Coroutine[Any, Any, tuple[Step, object]]],
    ) -> Coroutine[Any, Any, tuple[Step, object]]:
        """The course of a call of another kind; see `Performer.perform`."""
        return self._performer.perform(call, branch, live)

    def recorded(self, path: str) -> Step | None:
        """The outcome of the call at this path that an earlier owner recorded."""
        return self._performer.recorded.get(path)

    @property
    def has_unrecorded_sleeps(self) -> bool:
        """Whether a sleep was handed over whose place in the order nothing recorded names yet."""
        return self._riders.has_slept

    def forget(self, prefix: str, paths: Collection[str]) -> None:
        """A decision closes a branch: what is recorded of these calls will not be awaited."""
        self.turnstile.forget([p for p in self.turnstile.remaining() if p.startswith(prefix)])
        self.turnstile.forget(paths)
        self.inbox.void(lambda path: path.startswith(prefix) or path in paths)

    def event_type(self, name: str, asked: object) -> object:
        """What the value of that event must be.

        Raises:
            UsageError: the wait asks for another type than the workflow declares.
        """
        declared = self._definition.events.get(name)
        if declared is None or asked is None or asked == declared:
            return asked if declared is None else declared
        raise UsageError(
            f"workflow {self._definition.name!r} declares event {name!r} as {declared}, but waits "
            f"for it as {asked}",
            hint="leave the type out of wait_event, or make the two the same",
            run=self.run_id,
        )

    async def run_function(
        self,
        definition: WorkflowDefinition,
        scope: Scope,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """A workflow's function in this scope: in this task, or in a thread if it is sync."""
        if definition.is_async:
            with scope.entered():
                return await definition.fn(*args, **kwargs)
        self._keeper.start()
        with cleanup.inherited(cleanup.under_way()):
            return await self._threads.run(scope, definition.fn, args, kwargs)

    def publish(self, name: str, value: msgspec.Raw) -> None:
        """See `publishing.publish`; from any thread."""
        if self.closing is None:
            self._around.loop.soon(lambda: self.publishing.put(name, value))

    def closed(self, path: str) -> None:
        """The call at `path` has come to its end without an outcome."""
        if self.closing is None:
            self._riders.closed(path)

    def from_thread(self, scope: Scope, work: Callable[[], Awaitable[T]]) -> T:
        """See `Threads.ask`."""
        return self._threads.ask(scope, work)

    def moved(self) -> None:
        """The run made a call, received an outcome or ended a branch."""
        self.turnstile.activity += 1
        if self._cancellations.owed:
            self._cancellations.forget_taken_back()

    def decided(self) -> None:
        """A decision closed branches; see `Gate.decided`."""
        self._gate.decided()

    # -- its tasks --------------------------------------------------------------------------------

    async def _look(self) -> None:
        await self.cancelling.look()
        await self.inbox.look()
        await self.children.look()

    def _on_cancelled(self) -> None:
        self._limits.limit_cleanup()

    async def _come_to_end(self) -> None:
        cleanup.begin()
        try:
            ended = await self._function.outcome(self._call_function)
            if ended is not None:
                self._gate.finish(ended)
        except KeyboardInterrupt:
            raise  # the process was asked to end; no outcome is invented
        except BaseException as e:  # noqa: BLE001  # user code
            # What unwinding code raises is ignored. Anything else is user code that let a
            # cancellation of its own making escape from the workflow function.
            self._gate.finish(Finished(failure=failures.from_exception(e)))
        finally:
            self._over = True
            self.ended.set()

    def _call_function(self) -> Awaitable[object]:
        return self.run_function(self._definition, self._root, self._args, self._kwargs)


async def _dispatch(run_id: str, turnstile: Turnstile, gate: Gate) -> None:
    try:
        await turnstile.dispatch()
    except Exception as e:
        log.exception("run %r: the dispatcher failed; the run is closed", run_id)
        gate.close(Stopped("broken", error=None, path=repr(e)))
