"""Child workflows: runs of their own that a run starts and may wait for.

A child's id comes from the parent's instance and the path of the call that starts it, so however
often a parent dies between the child's start and its own record, there is one child. The child's
`start` names its parent, whom it wakes at its end. Waiting for a child is a durable wait: the
parent is parked and holds no place.

An owned child that is still under way when its parent is over is cancelled; a detached one goes
on.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
import msgspec

from durable.errors import (
    ChildCancelled,
    ChildGone,
    Conflict,
    RunFailed,
    SingletonTaken,
    StoreError,
    UsageError,
)
from durable.protocol import digests, failures, names, values
from durable.protocol.records import Cancel, Parent, Result, Start, Step
from durable.runtime import asking, debouncing, heirs, markers, starting
from durable.runtime.calls import Call
from durable.runtime.closing import Stopped, corrupt
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.facts import CorruptFact, decode_result, read_start
from durable.runtime.parking import Parking
from durable.runtime.performing import Performer
from durable.runtime.scopes import Scope, calling_scope
from durable.store import Refused, Store

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

log = logging.getLogger("durable")

ID_DIGITS = 20


class Started(msgspec.Struct):
    """What is recorded of a run that was started; `shared`: it is no child of this run."""

    run: str
    instance: str
    owned: bool = True
    shared: bool = False


class ChildHandle(Generic[R_co]):
    """A child as its parent sees it."""

    def __init__(self, definition: WorkflowDefinition, started: Started) -> None:
        self._definition = definition
        self._started = started

    @property
    def id(self) -> str:
        """The child's run id."""
        return self._started.run

    @property
    def instance(self) -> str:
        """Which instance of that id."""
        return self._started.instance

    def result(self) -> Coroutine[Any, Any, R_co]:
        """Wait for what the child returns; the parent is parked meanwhile.

        Raises:
            RunFailed: the child failed; `__cause__` is its error. `ChildCancelled` and
                `ChildGone`, which derive from it, if it was cancelled, or purged or restarted.
            NotInWorkflow: called outside the run that started it.
            UsageError: it was started with a debounce key.
        """
        if self._started.shared:
            raise UsageError(
                f"run {self.id!r} was started with a debounce key: its end wakes nobody, since "
                "any number of runs may have asked for it",
                hint="let it send an event to the run that waits: `handle.send(...)` in a step",
            )
        scope = calling_scope("result() of a child")
        if scope is None:
            raise RuntimeError(f"child {self.id!r} can only be waited for in the run it is of")
        return ChildWait(scope, self._definition, self._started)

    def __repr__(self) -> str:
        return f"<child run {self.id!r}, workflow {self._definition.name}>"


class ChildStart(Call[ChildHandle[R]]):
    """`workflow.start(...)` inside a run.

    Raises:
        InvalidArguments: the arguments do not fit, or cannot be stored.
        UsageError: its queue has no quiet time for its debounce key.
    """

    __slots__ = ("debounce_key", "definition", "input", "lock", "owned", "priority", "run", "tags")

    def __init__(
        self,
        scope: Scope,
        definition: WorkflowDefinition,
        call: tuple[tuple[object, ...], Mapping[str, object]],
        *,
        run: str | None,
        tags: Mapping[str, str],
        owned: bool,
        priority: int,
        debounce_key: str,
    ) -> None:
        args, kwargs = call
        definition.debounced(debounce_key, 0.0)  # asked for its error, before anything is begun
        signature, hints = definition.signature, definition.hints
        encoded = values.encode_call(signature, hints, args, kwargs, name=definition.name)
        digest = digests.of_call(definition.name, signature, args, kwargs, hints)
        super().__init__(scope, "start", f"start-{definition.name}", digest=digest, returns=Started)
        self.definition = definition
        self.input = msgspec.Raw(encoded)
        self.owned = owned and not debounce_key
        self.debounce_key = debounce_key
        self.tags = tags
        self.lock = definition.lock(args, kwargs)
        self.priority = priority
        self.run = run or _child_id(scope.execution.run_id, scope.execution.instance, self.path)

    def course(self, branch: Scope) -> Coroutine[Any, Any, tuple[Step, object]]:
        return self.scope.execution.children.start(self, branch)

    def given(self, value: object) -> ChildHandle[R]:
        assert isinstance(value, Started)
        self.scope.execution.children.known(value)
        return ChildHandle(self.definition, value)


class ChildWait(Call[R]):
    """`handle.result()` of a child."""

    __slots__ = ("child", "definition")

    def __init__(self, scope: Scope, definition: WorkflowDefinition, child: Started) -> None:
        super().__init__(scope, "child", f"result-{definition.name}", returns=definition.returns)
        self.child = child
        self.definition = definition

    def course(self, branch: Scope) -> Coroutine[Any, Any, tuple[Step, object]]:
        return self.scope.execution.children.result(self, branch)


def _child_id(run: str, instance: str, path: str) -> str:
    place = f"{run}\n{instance}\n{path}"
    return f"child-{hashlib.sha256(place.encode()).hexdigest()[:ID_DIGITS]}"


@dataclass(kw_only=True)
class Children:
    """The children of one execution's run.

    Attributes:
        owned: those that are cancelled when the run is over.
        unsure: ids of children that were to be owned, and of whose start nothing is recorded.
        ended: the ids of those whose end the run has seen.
    """

    performer: Performer
    parking: Parking
    instance: str
    owned: dict[str, Started] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    _news: anyio.Event = field(default_factory=anyio.Event)

    # -- starting ---------------------------------------------------------------------------------

    def start(
        self, call: ChildStart[Any], branch: Scope
    ) -> Coroutine[Any, Any, tuple[Step, object]]:
        """The course of a child's start: its two creates, then the parent's record."""
        performer = self.performer
        if call.owned:
            self.unsure.add(call.run)

        async def body() -> tuple[Step, object]:
            try:
                started = await self._started(call, branch)
            except Conflict as e:
                failure = failures.from_exception(e)
                return performer.recorder.outcome(call, "error", failure=failure), None
            raw = msgspec.Raw(values.encode(started, Started))
            return performer.recorder.outcome(call, "value", value=raw), started

        return performer.perform(call, branch, lambda: performer.live(call, branch, body))

    async def _started(self, call: ChildStart[Any], branch: Scope) -> Started:
        """The child, once nothing of an earlier one is in its way; see `heirs`."""
        in_flight = self.performer.in_flight
        while True:
            in_flight.begins(call.path)
            news = self._news  # its end wakes this run
            started = await self._start(call)
            if started is not None:
                return started
            in_flight.ends(call.path)
            why = f"for the end of run {call.run!r}, which was cancelled"
            with self.parking.wait(branch, call.path, None, why=why):
                await news.wait()
            if in_flight.draining:
                await in_flight.wait_for_the_end()

    async def _start(self, call: ChildStart[Any]) -> Started | None:
        around, definition = self.performer.around, call.definition
        now = around.store.now()
        parent = Parent(
            run=self.performer.run_id, instance=self.instance, path=call.path, owned=call.owned
        )
        debounce = definition.debounced(call.debounce_key, now)
        start = Start(
            workflow=definition.name, input=call.input, queue=definition.queue,
            instance=starting.random_id(around.system), nonce=around.system.token(),
            tags=dict(call.tags), created=now, deadline=definition.deadline(now, debounce),
            workflow_version=definition.version, pinned=definition.pinned, parent=parent,
            lock=call.lock, limited=definition.is_limited, priority=call.priority,
            label=definition.label, debounce=debounce,
        )  # fmt: skip
        if start.is_collecting:
            return await self._share(call.run, start)
        try:
            written = await around.launch(around.store, call.run, start)
            if isinstance(written, Refused) and written.current is not None:
                found = await heirs.in_place_of(around.store, written.current, start, call.run)
                if found is None:
                    return None
                start = found
        except (StoreError, CorruptFact) as e:
            raise await self._stop(e) from e
        return Started(call.run, start.instance, call.owned)

    async def _share(self, run: str, start: Start) -> Started:
        """Ask for a run that others may ask for, too: it has no parent.

        Asked again after a crash, it may be asked for twice: the request is at-least-once.
        """
        around = self.performer.around
        start = msgspec.structs.replace(start, parent=None)
        try:
            begun = await debouncing.start(around.store, run, start, begin=around.launch)
        except (StoreError, CorruptFact) as e:
            raise await self._stop(e) from e
        return Started(begun.run, begun.start.instance, owned=False, shared=True)

    def known(self, started: Started) -> None:
        """The run has a child."""
        self.unsure.discard(started.run)
        if started.owned:
            self.owned[started.run] = started

    # -- waiting ----------------------------------------------------------------------------------

    async def look(self) -> None:
        """The run was touched: a child may have come to its end."""
        self._news.set()
        self._news = anyio.Event()

    async def result(self, call: ChildWait[Any], branch: Scope) -> tuple[Step, object]:
        """The course of the wait for a child's end."""
        performer = self.performer

        async def body() -> tuple[Step, object]:
            while True:
                news = self._news  # what comes during the look is looked at again
                found = await self._look_at(call)
                if found is not None:
                    return found
                why = f"for child run {call.child.run!r}"
                with self.parking.wait(branch, call.path, None, why=why):
                    await news.wait()

        outcome = await performer.perform(call, branch, lambda: performer.live(call, branch, body))
        if outcome[0].outcome in {"value", "error"}:  # else the parent is cancelled
            self.ended.add(call.child.run)
        return outcome

    async def _look_at(self, call: ChildWait[Any]) -> tuple[Step, object] | None:
        """What the child has come to; None while it is under way."""
        store, child = self.performer.around.store, call.child
        try:
            stored = await store.read(names.result(child.run, child.instance))
            if stored is not None:
                return self._outcome(call, decode_result(stored))
            # The outcome first, then `start`: one that names another instance is the last word.
            start = await read_start(store, child.run)
        except (StoreError, CorruptFact) as e:
            raise await self._stop(e) from e
        if start is not None and not start.tombstone and start.instance == child.instance:
            return None
        what = "was purged" if start is None or start.tombstone else "was started anew"
        gone = ChildGone(f"child run {child.run!r} {what} before its end was seen", run=child.run)
        return self._failed(call, gone), None

    def _outcome(self, call: ChildWait[Any], result: Result) -> tuple[Step, object]:
        run = call.child.run
        if result.status == "cancelled":
            said = result.failure.message if result.failure else f"run {run!r} was cancelled"
            return self._failed(call, ChildCancelled(said, run=run)), None
        if result.failure is not None:
            said = f"{result.failure.type}: {result.failure.message}"
            failed = RunFailed(f"child run {run!r} failed: {said}", run=run)
            failed.__cause__ = failures.rebuild(result.failure)
            return self._failed(call, failed), None
        holder = result.skipped or result.joined
        if holder is not None:
            # Its end wakes the parent; that of another run does not.
            said = f"child run {run!r} stepped aside for run {holder.run!r}"
            aside = RunFailed(said, run=run)
            aside.__cause__ = SingletonTaken(said, holder=holder.run, since=holder.since)
            return self._failed(call, aside), None
        if isinstance(result.value, msgspec.UnsetType):
            return self.performer.recorder.outcome(call, "value"), None
        try:
            copy = values.decode(result.value, call.returns)
        except values.Undecodable as e:
            unfit = RunFailed(
                f"what child run {run!r} returned does not fit the return annotation of "
                f"{call.definition.name!r}: {e.said_of('result')}",
                run=run,
            )
            return self._failed(call, unfit), None
        return self.performer.recorder.outcome(call, "value", value=result.value), copy

    def _failed(self, call: Call[Any], error: Exception) -> Step:
        failure = failures.from_exception(error)
        return self.performer.recorder.outcome(call, "error", failure=failure)

    async def _stop(self, error: StoreError | CorruptFact) -> BaseException:
        """The store refuses, or holds a stranger's object: the run cannot go on here."""
        gate, run = self.performer.gate, self.performer.run_id
        if isinstance(error, CorruptFact):
            gate.close(corrupt(f"run {run!r}: {error}"))
        else:
            gate.close(Stopped("store", error=error))
        return await gate.refusal()


async def wake_parent(store: Store, parent: Parent) -> None:
    """A child is over, or gone: whoever waits for it looks again.

    Also a later instance of the parent: it may have kept the child, or wait for its place.
    """
    start = await read_start(store, parent.run)
    if start is None or start.tombstone:
        return
    if await store.read(names.result(parent.run, start.instance)) is None:
        await markers.wake(store, parent.run, start, nonce=store.system.token)


async def cancel_open(
    store: Store, parent: str, instance: str, children: Mapping[str, Started], unsure: Iterable[str]
) -> None:
    """The parent is over: owned children that are under way are cancelled.

    Args:
        instance: of the parent.
        children: those that it knows of.
        unsure: ids of runs that may be its children, too.
    """
    for child in children.values():
        if await store.read(names.result(child.run, child.instance)) is not None:
            continue
        start = await _present_start(store, child.run)
        if start is not None and start.instance == child.instance:
            await asking.cancel(store, child.run, start, asking.parent_over(parent))
    for run in unsure:
        start = await _present_start(store, run)
        if start is not None and start.parent is not None and start.parent.instance == instance:
            await asking.cancel(store, run, start, asking.parent_over(parent))


async def cancel_orphan(store: Store, run: str, start: Start) -> Cancel | None:
    """Cancel an owned child that is picked up although its parent is over.

    The parent may never have known of it: it died, or was a zombie, between the child's start
    and its own record.
    """
    parent = start.parent
    if parent is None or not parent.owned:
        return None
    if await store.read(names.result(parent.run, parent.instance)) is None:
        theirs = await _present_start(store, parent.run)
        if theirs is not None and theirs.instance == parent.instance:
            return None
    return await asking.note(store, run, start.instance, asking.parent_over(parent.run))


async def _present_start(store: Store, run: str) -> Start | None:
    try:
        start = await read_start(store, run)
    except CorruptFact as e:
        log.warning("run %r is passed over: %s", run, e)
        return None
    return None if start is None or start.tombstone else start


def unsure_in(run: str, instance: str, steps: Iterable[Step]) -> set[str]:
    """The ids of children whose start was cut off, as far as these records tell."""
    return {
        _child_id(run, instance, step.path)
        for step in steps
        if step.kind == "start" and step.outcome in {"cancelled", "abandoned"}
    }


def owned_in(steps: list[Step]) -> dict[str, Started]:
    """The owned children that these records tell of."""
    found: dict[str, Started] = {}
    for step in steps:
        if step.kind == "start" and isinstance(step.value, msgspec.Raw):
            started = values.decode(step.value, Started)
            assert isinstance(started, Started)
            if started.owned:
                found[started.run] = started
    return found
