"""One owner's execution of one run: the function from the top, with its recorded past.

A call whose outcome is recorded returns it; otherwise its body runs and the outcome is recorded
before anybody sees it (promise P1). What the workflow receives is always the decoded copy.

An execution ends by itself (`Finished`) or is closed from outside or by what it finds: from that
moment its context is closed, every durable call raises the cancellation again, and what the
function then returns or raises is ignored (promise P6).
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import msgspec

from durable.errors import StoreError
from durable.protocol import digests, failures, names, records, retries, values
from durable.protocol.journal import Journal
from durable.protocol.records import Attempt, Step
from durable.runtime.calls import Call
from durable.runtime.closing import Attention, Closing, Finished, LateRecord, Stopped
from durable.runtime.definitions import Definition, WorkflowDefinition
from durable.runtime.scopes import Current, Scope, here
from durable.runtime.turns import (
    Requests,
    cancel_count,
    cancel_requests,
    cancellation,
    cancelled_since,
    strand,
    turn,
    waker,
)
from durable.runtime.turnstile import Turnstile
from durable.store import Refused, Store
from durable.system import System

T = TypeVar("T")

log = logging.getLogger("durable")

REFUSALS_MAX = 100  # a task whose calls were refused this often in a closed run goes no further


class Unwinding(BaseException):
    """Raised by durable calls in threads of a closed run; user code must let it pass."""


@dataclass(frozen=True)
class _Asked:
    """Durable work that a thread waits for."""

    work: Callable[[], Coroutine[Any, Any, None]]
    done: threading.Event


class Progress(msgspec.Struct, frozen=True):
    """What an observer of an execution is told.

    `kind`: `begin` (a body starts), `retry` (an attempt failed, the next follows in `seconds`),
    `record` (an outcome was recorded), `replay` (a recorded outcome was handed over).
    """

    kind: str
    path: str
    name: str
    attempt: int = 1
    failed: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What every execution of one worker shares.

    Attributes:
        trusted: whether this worker still holds its lease (promise P11); asked before every
            body and every write.
        steps: limit of threads for sync step bodies.
        workflows: limit of threads for sync workflow functions.
        replay_only: no body runs and nothing is written: the first unrecorded call ends the
            execution (`durable replay`).
    """

    store: Store
    system: System
    trusted: Callable[[], bool]
    steps: anyio.CapacityLimiter
    workflows: anyio.CapacityLimiter
    observe: Callable[[str, Progress], None] = lambda run, progress: None
    replay_only: bool = False


@dataclass(kw_only=True)
class Execution:
    """See the module's docstring. `await run()` in a task of its own; `ended` then tells."""

    around: Surroundings
    definition: WorkflowDefinition
    run_id: str
    instance: str
    epoch: int
    journal: Journal
    args: tuple[object, ...]
    kwargs: dict[str, object]
    closing: Closing | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)
    running: set[str] = field(default_factory=set)  # paths of bodies and writes in flight
    draining: bool = False

    def __post_init__(self) -> None:
        self.run = self.run_id
        order = [step.path for step in self.journal.order]
        self.turnstile = Turnstile(order, self._start_dispatcher)
        self._recorded = {step.path: step for step in self.journal.order}
        self._root = Scope(self, "")
        self._owed: dict[int, Requests] = {}  # by strand: a cancellation that was put off
        self._waits: dict[anyio.CancelScope, Scope] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        # Shielded: a cancellation from outside must not look like one of user code.
        self._host = anyio.CancelScope(shield=True)
        self._refused: Counter[int] = Counter()  # by strand
        self._asked: deque[_Asked] = deque()
        self._asking = anyio.Event()
        self._serving = False

    def current(self) -> Current:
        return Current(self.run, self.definition.name, 1, self.epoch, self._key(""))

    # -- from begin to end ------------------------------------------------------------------------

    async def run_to_end(self) -> None:
        """Run the workflow function; returns when nothing of it is left.

        `ended` may be set earlier: a task that refuses to unwind is left behind.
        """
        self._wake = waker()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._run_host)
            try:
                await self.ended.wait()
            except anyio.get_cancelled_exc_class():
                self.close(Stopped("cancelled"))
                raise
            tasks.cancel_scope.cancel()
        while self._asked:
            self._asked.popleft().done.set()

    def close(self, why: Closing) -> None:
        """Unwind now; the first reason given counts."""
        if self.closing is not None:
            return
        self.closing = why
        self._host.cancel()
        self._release()

    def _release(self) -> None:
        """Whatever waits inside a durable call goes on and finds the run closed."""
        self.turnstile.release()
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

    def _wait(self, branch: Scope, *, shield: bool) -> _Wait:
        """Around a wait that ends when the run is closed or the branch decided."""
        return _Wait(self, branch, shield)

    def wait_begins(self, scope: anyio.CancelScope, branch: Scope) -> None:
        """From now on `scope` is cancelled when the run is closed or the branch decided."""
        if not self._is_open(branch):
            scope.cancel()
        self._waits[scope] = branch

    def wait_ends(self, scope: anyio.CancelScope) -> None:
        """Whoever waited in `scope` goes on."""
        del self._waits[scope]

    def _is_open(self, branch: Scope) -> bool:
        return self.closing is None and not branch.is_decided()

    def drain(self) -> None:
        """Start no further body; close as soon as none is in flight."""
        self.draining = True
        if not self.running:
            self.close(Stopped("drain"))

    async def _run_host(self) -> None:
        try:
            with self._host:
                self._finish(await self._outcome())
        except (KeyboardInterrupt, SystemExit):
            raise  # the process ends; no outcome is invented
        except BaseException as e:  # noqa: BLE001
            # What unwinding code raises is ignored. Anything else is user code that let a
            # cancellation of its own making escape from the workflow function.
            self._finish(Finished(failure=failures.from_exception(e)))
        finally:
            self.ended.set()

    def _finish(self, finished: Finished) -> None:
        """The function has come to its end, unless the run was closed before."""
        if self.closing is None:
            self.closing = finished
            self._release()

    async def _outcome(self) -> Finished:
        definition = self.definition
        try:
            value = await self.run_function(definition, self._root, self.args, self.kwargs)
            raw, _ = values.encode_result(value, definition.returns, name=definition.name)
        except Exception as e:  # noqa: BLE001
            return Finished(failure=failures.from_exception(e))
        return Finished(value=msgspec.Raw(raw))

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
        if not self._serving and self._tasks is not None:
            self._serving = True
            self._tasks.start_soon(self._serve_threads)
        return await anyio.to_thread.run_sync(
            _apply_in, scope, definition.fn, args, kwargs,
            limiter=self.around.workflows, abandon_on_cancel=True,
        )  # fmt: skip

    def moved(self) -> None:
        """The run made a call, received an outcome or ended a branch."""
        self.turnstile.moved()
        for owing, requests in list(self._owed.items()):
            if requests.taken_back():
                del self._owed[owing]

    # -- performing a call ------------------------------------------------------------------------

    async def perform(self, call: Call[Any], branch: Scope) -> tuple[Step, object]:
        """The call's outcome and decoded value, in its turn.

        Raises the event loop's cancellation if the call was cancelled or the run is closed.
        """
        await self._check_open(branch)
        if self._concurrent(branch):
            self.turnstile.concurrent()
        step = self._recorded.get(call.path)
        if step is None:
            return await self._perform_live(call, branch)
        await self._check_drift(call, step)
        if step.outcome == "abandoned":
            raise await self._until_cancelled(call, branch)
        value = await self._decoded(call, step)
        event = self.turnstile.recorded_turn(call.path)
        if event is None:
            await self._let_tasks_begin()
        else:
            await self._in_turn(event, branch)
        await self._check_open(branch)
        self._observe("replay", call, step)
        return step, value

    def _concurrent(self, branch: Scope) -> bool:
        """Whether other calls may be under way beside one made in this branch."""
        root = self._root
        if branch is not root or len(root.unfinished) > 1:
            return True
        return root.owner > 0 and strand() != root.owner

    async def _perform_live(self, call: Call[Any], branch: Scope) -> tuple[Step, object]:
        try:
            with self._wait(branch, shield=False):
                await self._start_turn(call, branch)
                self.running.add(call.path)
                outcome = await self._attempts(call, branch)
            await self._check_open(branch)
        except anyio.get_cancelled_exc_class():
            self._not_running(call.path)
            if self._is_open(branch):
                # User code cancelled it (a bare timeout, a failing sibling): replay must cancel
                # it in the same place, so that is an outcome too.
                await self._record_in_turn(call, self._step(call, "abandoned"), branch)
            raise
        try:
            await self._record_in_turn(call, outcome[0], branch)
        finally:
            self._not_running(call.path)
        return outcome

    async def _start_turn(self, call: Call[Any], branch: Scope) -> None:
        """Returns when the body of an unrecorded call may start."""
        event = self.turnstile.start_turn()
        if event is not None:
            await event.wait()
            await self._check_open(branch)
        if self.around.replay_only:
            self.close(Stopped("replayed", path=call.path))
            await self._check_open(branch)
        if self._owed:
            await self._raise_owed()
        await anyio.lowlevel.checkpoint_if_cancelled()
        await self._wait_if_draining()

    async def _wait_if_draining(self) -> None:
        if self.draining:
            await anyio.sleep_forever()  # until the bodies in flight end and the run closes

    def _not_running(self, path: str) -> None:
        self.running.discard(path)
        if self.draining and not self.running:
            self.close(Stopped("drain"))

    async def _record_in_turn(self, call: Call[Any], step: Step, branch: Scope) -> None:
        await self._check_open(branch)
        step.n = self.turnstile.issue()
        try:
            await self._write(self._record, step, branch)
            self._observe("record", call, step)
        finally:
            event = self.turnstile.live_turn(step.n)  # in any case: others wait behind it
        if event is not None:
            await self._in_turn(event, branch)
        await self._check_open(branch)

    async def _until_cancelled(self, call: Call[Any], branch: Scope) -> BaseException:
        """Replay of an abandoned call: it waits for the same cancellation, then for its turn."""
        self.turnstile.expect_cancellation(call.path)
        try:
            with self._wait(branch, shield=False):
                await self._raise_owed()
                await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class() as cancelled:
            if self._is_open(branch):
                event = self.turnstile.recorded_turn(call.path)
                if event is not None:
                    await self._in_turn(event, branch)
            await self._check_open(branch)
            return cancelled
        await self._check_open(branch)
        raise AssertionError("nothing but closing ends this wait")

    async def _check_drift(self, call: Call[Any], step: Step) -> None:
        asked = call.definition.name
        if step.name == asked and not _digests_differ(step.digest, call.digest):
            return
        what = "it with other arguments" if step.name == asked else f"{asked!r} there"
        self.close(
            Attention(
                "drift",
                f"run {self.run!r} recorded call {call.path!r} as {step.name!r}, but the code "
                f"now calls {what}",
                hint="bring back the code that recorded it, or restart the run under a new id; "
                "`durable replay` shows where the two part",
                path=call.path,
                recorded=f"{step.name} {step.digest}".strip(),
                asked=f"{asked} {call.digest}".strip(),
            )
        )
        await self._check_open(self._root)

    async def _decoded(self, call: Call[Any], step: Step) -> object:
        if isinstance(step.value, msgspec.UnsetType):
            return None
        try:
            return values.decode(step.value, call.definition.returns)
        except values.Undecodable as e:
            self.close(
                Attention(
                    "undecodable",
                    f"run {self.run!r} recorded a value for {call.path!r} that does not fit "
                    f"the return annotation of {step.name!r}: {e}",
                    hint="give the new field a default, or bring back the old annotation",
                    path=call.path,
                )
            )
        raise await self._refusal()

    # -- bodies -----------------------------------------------------------------------------------

    async def _attempts(self, call: Call[Any], branch: Scope) -> tuple[Step, object]:
        """Run the body until it succeeds or its error is final; failed attempts are recorded."""
        attempt = self.journal.attempts.get(call.path)
        number = attempt.attempt if attempt else 0
        if attempt:
            await self._back_off(call, attempt.due - self.around.store.now())
        while True:
            number += 1
            if not self._guard():
                raise await self._refusal()
            self._observe("begin", call, None, attempt=number)
            before = cancel_count()
            try:
                value = await self._body(call, number)
                raw, copy = values.encode_result(
                    value, call.definition.returns, name=call.definition.name
                )
                return self._step(call, "value", value=msgspec.Raw(raw), attempt=number), copy
            except (KeyboardInterrupt, SystemExit, Unwinding):
                raise  # nothing happened that could be recorded
            except BaseException as e:
                if isinstance(e, anyio.get_cancelled_exc_class()) and cancelled_since(before):
                    raise
                failure = failures.from_exception(e)
                decision = retries.decide(
                    call.definition.retry, number, e, uniform=self.around.system.uniform(0, 1)
                )
            if isinstance(decision, retries.GiveUp):
                return self._step(call, "error", failure=failure, attempt=number), None
            await self._failed_attempt(call, branch, number, failure, decision.seconds)

    async def _failed_attempt(
        self,
        call: Call[Any],
        branch: Scope,
        number: int,
        failure: failures.Failure,
        delay: float,
    ) -> None:
        now = self.around.store.now()
        nonce = self.around.system.token()
        attempt = Attempt(call.path, number, failure, now + delay, nonce, now, self.epoch)
        self._observe("retry", call, None, attempt=number, seconds=delay)
        await self._write(self._record_attempt, attempt, branch)
        await self._back_off(call, delay)

    async def _back_off(self, call: Call[Any], seconds: float) -> None:
        """Wait in place for the next attempt; meanwhile no body is in flight."""
        self._not_running(call.path)
        await anyio.sleep(max(0.0, seconds))
        await self._wait_if_draining()
        self.running.add(call.path)

    async def _body(self, call: Call[Any], attempt: int) -> object:
        place = Current(self.run, self.definition.name, attempt, self.epoch, self._key(call.path))
        return await self.invoke(call.definition, place, call.args, call.kwargs)

    async def invoke(
        self,
        definition: Definition,
        place: Scope | Current,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Call a user's function with `here` set: async in this task, sync in a thread."""
        token = here.set(place)
        try:
            if definition.is_async:
                return await definition.fn(*args, **kwargs)
            return await anyio.to_thread.run_sync(
                _apply, definition.fn, args, kwargs,
                limiter=self.around.steps, abandon_on_cancel=True,
            )  # fmt: skip
        finally:
            here.reset(token)

    def _step(self, call: Call[Any], outcome: Any, **more: Any) -> Step:
        return Step(
            path=call.path, name=call.definition.name, outcome=outcome, epoch=self.epoch, n=0,
            nonce=self.around.system.token(), time=self.around.store.now(), digest=call.digest,
            **more,
        )  # fmt: skip

    # -- writing ----------------------------------------------------------------------------------

    async def _record(self, step: Step) -> None:
        name = names.step(self.run, self.instance, step.path)
        written = await self.around.store.create(name, records.encode(step), nonce=step.nonce)
        if isinstance(written, Refused):
            self.close(LateRecord(step.path))

    async def _record_attempt(self, attempt: Attempt) -> None:
        name = names.attempt(self.run, self.instance, attempt.path, attempt.attempt)
        # A refusal means that a dead owner's claim of this attempt landed late: it counts.
        await self.around.store.create(name, records.encode(attempt), nonce=attempt.nonce)

    async def _write(
        self, write: Callable[[Any], Awaitable[None]], record: Any, branch: Scope
    ) -> None:
        """Write whatever cancellations user code sends: only closing the run interrupts it.

        (Or a decision that closes the branch: then nobody waits for the record.) Native asyncio
        cancellation pierces anyio's shields, and may come again every turn. So the first one
        moves the write to a task of the run's own; the nonce makes it safe to repeat. The
        cancellation is raised at this strand's next durable call.
        """
        if self._guard() and self._is_open(branch):
            try:
                with self._wait(branch, shield=True):
                    await self._write_or_close(write, record)
            except anyio.get_cancelled_exc_class():
                self._put_off()
                await self._write_apart(write, record, branch)
        self._guard()  # what an owner without its lease has recorded, its successor hands over
        await self._check_open(branch)

    async def _write_or_close(self, write: Callable[[Any], Awaitable[None]], record: Any) -> None:
        try:
            await write(record)
        except StoreError as e:
            # The record is not in the store, so nobody may see the outcome.
            self.close(Stopped("store", error=e))

    async def _write_apart(
        self, write: Callable[[Any], Awaitable[None]], record: Any, branch: Scope
    ) -> None:
        assert self._tasks is not None
        ended = anyio.Event()

        async def apart() -> None:
            with self._wait(branch, shield=False):
                await self._write_or_close(write, record)
            ended.set()

        self._tasks.start_soon(apart)
        await self._in_turn(ended, branch)

    async def _in_turn(self, event: anyio.Event, branch: Scope) -> None:
        """Wait for the turn, whatever cancellations user code sends meanwhile."""
        while not event.is_set() and self._is_open(branch):
            try:
                with self._wait(branch, shield=True):
                    await event.wait()
            except anyio.get_cancelled_exc_class():
                self._put_off()

    async def _let_tasks_begin(self) -> None:
        """Tasks that the run has created begin, as they did live while a body ran."""
        try:
            await turn()
        except anyio.get_cancelled_exc_class():
            self._put_off()

    def _put_off(self) -> None:
        """This strand was cancelled in a call that will return: it owes the cancellation."""
        requests = cancel_requests()
        if requests is not None:
            self._owed[strand()] = requests

    async def _raise_owed(self) -> None:
        """Raise the cancellation that this strand has put off, if it still stands."""
        owed = self._owed.pop(strand(), None)
        if owed is not None and not owed.taken_back():
            raise await cancellation()

    # -- closing ----------------------------------------------------------------------------------

    def _guard(self) -> bool:
        """Whether this owner may still act (promise P11); closes the execution if not."""
        if self.closing is None and not self.around.trusted():
            self.close(Stopped("lease"))
        return self.closing is None

    async def _check_open(self, branch: Scope) -> None:
        """Raise the cancellation again if the run is closed or the branch decided."""
        if self.closing is not None:
            raise await self._refusal()
        if branch.is_decided():
            raise await cancellation()

    async def _refusal(self) -> BaseException:
        if self._refused_too_often():
            if not self.ended.is_set():
                log.warning(
                    "run %r does not unwind: its code swallows cancellations; "
                    "one of its tasks is left behind",
                    self.run,
                )
                self.ended.set()
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()
        return await cancellation()

    def _refused_too_often(self) -> bool:
        self._refused[strand()] += 1
        return self._refused[strand()] > REFUSALS_MAX

    # -- from threads -----------------------------------------------------------------------------

    def from_thread(self, scope: Scope, work: Callable[[], Awaitable[T]]) -> T:
        """Run durable work in the run's event loop for sync code; blocks the calling thread.

        Raises:
            Unwinding: the run is closed.
        """
        done = threading.Event()
        outcome: list[T] = []
        error: list[BaseException] = []

        async def in_loop() -> None:
            here.set(scope)
            try:
                with self._wait(scope, shield=True):
                    outcome.append(await work())
            except BaseException as e:
                error.append(e)
                if not isinstance(e, Exception):
                    raise
            finally:
                done.set()

        if self.closing is None:
            self._wake(lambda: self._ask(_Asked(in_loop, done)))
            done.wait()
        if outcome:
            return outcome[0]
        if self.closing is None and error and isinstance(error[0], Exception):
            raise error[0]
        if self._refused_too_often():
            threading.Event().wait()  # the thread swallows everything: it does not come back
        raise Unwinding(f"run {self.run!r} goes on elsewhere")

    def _ask(self, asked: _Asked) -> None:
        if self.ended.is_set():
            asked.done.set()
        else:
            self._asked.append(asked)
            self._asking.set()

    async def _serve_threads(self) -> None:
        """Start what threads ask for: a task group takes no tasks from a bare callback."""
        assert self._tasks is not None
        while True:
            await self._asking.wait()
            self._asking = anyio.Event()
            while self._asked:
                self._tasks.start_soon(self._asked.popleft().work)

    # -- small things -----------------------------------------------------------------------------

    def rebuild(self, failure: failures.Failure) -> BaseException:
        """The recorded error, the same live and on replay."""
        return failures.rebuild(failure)

    def _key(self, path: str) -> str:
        return hashlib.sha256(f"{self.run}\n{self.instance}\n{path}".encode()).hexdigest()[:32]

    def _observe(
        self, kind: str, call: Call[Any], step: Step | None, *, attempt: int = 1, seconds: float = 0
    ) -> None:
        failed = kind == "retry" or (step is not None and step.outcome == "error")
        self.around.observe(
            self.run, Progress(kind, call.path, call.definition.name, attempt, failed, seconds)
        )

    def _start_dispatcher(self) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(self._dispatch)

    async def _dispatch(self) -> None:
        try:
            await self.turnstile.dispatch()
        except Exception as e:
            log.exception("run %r: the dispatcher failed; the run is closed", self.run)
            self.close(Stopped("broken", error=None, path=repr(e)))


class _Wait:
    """See `Execution._wait`. No generator: two of these stand around every step."""

    __slots__ = ("_branch", "_execution", "_scope")

    def __init__(self, execution: Execution, branch: Scope, shield: bool) -> None:
        self._execution = execution
        self._branch = branch
        self._scope = anyio.CancelScope(shield=shield)

    def __enter__(self) -> None:
        self._scope.__enter__()
        self._execution.wait_begins(self._scope, self._branch)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._execution.wait_ends(self._scope)
        return bool(self._scope.__exit__(kind, error, traceback))


def _apply(fn: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
    return fn(*args, **kwargs)


def _apply_in(
    scope: Scope, fn: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> T:
    with scope.entered():
        return fn(*args, **kwargs)


def _digests_differ(recorded: str, asked: str) -> bool:
    return bool(recorded and asked) and recorded != asked and digests.comparable(recorded, asked)
