"""One run executed directly, by as many owners as a test likes, on a memory store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec

from durable.decorators import Durable, step, workflow
from durable.protocol import failures, names, records, values
from durable.protocol.journal import seen
from durable.protocol.records import Attempt, Cancel, Epoch, Group, Start, Step
from durable.protocol.retries import Retry
from durable.runtime import undoing
from durable.runtime.closing import Closing, Finished
from durable.runtime.execution import Execution
from durable.runtime.facts import load
from durable.runtime.surroundings import Progress, Surroundings
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend
from durable.system import System
from tests.stores import chosen

RUN = "run"
INSTANCE = "i"


def named(fn: Callable[..., Any]) -> str:
    """A name that no function of another test has."""
    return f"{fn.__module__}.{fn.__qualname__}".replace(".<locals>", "")


def a_step(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """`@step` for functions inside tests; the recorded name is the function's own."""

    def decorate(fn: Callable[..., Any]) -> Any:
        made = step(name=named(fn), **options)(fn)
        made.definition = msgspec.structs.replace(made.definition, name=fn.__name__)
        return made

    return decorate if fn is None else decorate(fn)


def a_workflow(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """`@workflow` for functions inside tests."""

    def decorate(fn: Callable[..., Any]) -> Any:
        return workflow(name=named(fn), **options)(fn)

    return decorate if fn is None else decorate(fn)


@dataclass
class Run:
    """A run and its owners so far.

    Attributes:
        progress: what observers were told, as `kind path`.
        faults: of the store, asked before each call.
    """

    workflow: Durable[..., Any]
    args: tuple[Any, ...] = ()
    bucket: Bucket = field(default_factory=Bucket)
    faults: Callable[[Call], Fault | None] | None = None
    progress: list[str] = field(default_factory=list)
    execution: Execution | None = None
    deadline: float = 0.0

    async def execute(
        self,
        *,
        meanwhile: Callable[[Execution], Awaitable[None]] | None = None,
        trusted: Callable[[], bool] = lambda: True,
        replay_only: bool = False,
        definition: Any = None,
    ) -> Closing | None:
        """One more owner, from its list to its end; returns why it ended."""
        execution = await self._prepare(trusted, replay_only, definition)
        self.progress.clear()
        async with anyio.create_task_group() as tasks:
            if meanwhile is not None:
                tasks.start_soon(meanwhile, execution)
            async with anyio.create_task_group() as its:
                its.start_soon(execution.run_to_end, its.start_soon)
                await execution.end()
            tasks.cancel_scope.cancel()
        return await execution.conclude()

    async def _prepare(
        self, trusted: Callable[[], bool], replay_only: bool, definition: Any
    ) -> Execution:
        store = Store(MemoryBackend(chosen(self.bucket), faults=self.faults), patience=None)
        start = records.encode(Start("w", msgspec.Raw(b"{}"), INSTANCE, "start"))
        self.bucket.create(names.start(RUN), start, {"nonce": "start"}, True)
        facts = await load(Store(MemoryBackend(chosen(self.bucket))), RUN)
        assert facts is not None
        epoch = 1
        if not facts.fresh:
            epoch = max((e.epoch for e in facts.epochs), default=1) + 1
            self.put_epoch(Epoch(epoch, "w", "", "takeover", f"e{epoch}", 0.0, seen(facts.steps)))
        self.execution = Execution(
            around=Surroundings(
                store=store, system=System(uniform=lambda low, high: high), trusted=trusted,
                steps=anyio.CapacityLimiter(8), workflows=anyio.CapacityLimiter(4),
                observe=self._observe, replay_only=replay_only,
            ),
            definition=(definition or self.workflow).definition, run_id=RUN, instance=INSTANCE,
            epoch=epoch, journal=facts.journal(), args=self.args, kwargs={}, cancel=facts.cancel,
            undos=undoing.by_path(facts.undos), deadline=self.deadline,
        )  # fmt: skip
        return self.execution

    def _observe(self, run: str, progress: Progress) -> None:
        self.progress.append(f"{progress.kind} {progress.path}")

    # -- what is recorded -------------------------------------------------------------------------

    @property
    def begun(self) -> list[str]:
        """Paths of the bodies that the last owner started."""
        return [line.removeprefix("begin ") for line in self.progress if line[:5] == "begin"]

    def steps(self) -> dict[str, Step]:
        """The recorded outcomes by path, in the order of recording."""
        found = [msgspec.json.decode(b, type=Step) for b in self._bodies("steps/")]
        found += [step for group in self.groups() for step in group.outcomes()]
        return {s.path: s for s in sorted(found, key=lambda s: (s.epoch, s.n))}

    def groups(self) -> list[Group]:
        """The records of several outcomes, in their order."""
        found = [msgspec.json.decode(b, type=Group) for b in self._bodies("groups/")]
        return sorted(found, key=lambda group: group.k)

    def put_group(self, group: Group) -> None:
        self._put(names.group(RUN, INSTANCE, group.k), group, group.nonce)

    def attempts(self) -> list[Attempt]:
        return [msgspec.json.decode(b, type=Attempt) for b in self._bodies("attempts/")]

    def _bodies(self, kind: str) -> list[bytes]:
        prefix = names.instance_folder(RUN, INSTANCE) + kind
        listed = self.bucket.list(prefix, None).items
        found = [item if item.body is not None else self.bucket.read(item.name) for item in listed]
        return [stored.body or b"" for stored in found if stored is not None]

    def put_step(self, step: Step) -> None:
        self._put(names.step(RUN, INSTANCE, step.path), step, step.nonce)

    def put_attempt(self, attempt: Attempt) -> None:
        name = names.attempt(RUN, INSTANCE, attempt.path, attempt.attempt)
        self._put(name, attempt, attempt.nonce)

    def put_epoch(self, epoch: Epoch) -> None:
        self._put(names.epoch(RUN, INSTANCE, epoch.epoch), epoch, epoch.nonce)

    def put_cancel(self, reason: str = "") -> Cancel:
        """Somebody asks for the run to be cancelled; whoever executes it has to be told."""
        asked = Cancel("cancel", 0.0, reason=reason)
        self.bucket.create(names.cancel(RUN, INSTANCE), records.encode(asked), {}, True)
        return asked

    def forget(self, *paths: str) -> None:
        """As if these had never been recorded: the owner died before."""
        for path in paths:
            stored = self.bucket.read(names.step(RUN, INSTANCE, path))
            assert stored is not None
            assert self.bucket.delete(stored.name, stored.generation)

    def _put(self, name: str, record: msgspec.Struct, nonce: str) -> None:
        assert self.bucket.create(name, records.encode(record), {"nonce": nonce}, True)

    def calls(self) -> dict[str, int]:
        """Store calls since the last time this was asked, by verb."""
        counted = dict(self.bucket.calls)
        self.bucket.calls.clear()
        return counted


def value_of(closing: Closing | None) -> Any:
    """What the workflow returned."""
    assert isinstance(closing, Finished), closing
    assert closing.failure is None, closing.failure
    assert isinstance(closing.value, msgspec.Raw)
    return values.decode(closing.value, None)


def error_of(closing: Closing | None) -> BaseException:
    """What the workflow raised, rebuilt."""
    assert isinstance(closing, Finished), closing
    assert closing.failure is not None, closing
    return failures.rebuild(closing.failure)


def recorded(path: str, n: int, value: object = None, *, epoch: int = 1, **more: Any) -> Step:
    """A record as an earlier owner would have left it."""
    raw, _ = values.encode_result(value, None, name="s")
    name = path.rsplit("/", 1)[-1].split(".", maxsplit=1)[0].split("=", maxsplit=1)[0]
    given = {"outcome": "value", "value": msgspec.Raw(raw), **more}
    return Step(path=path, name=name, epoch=epoch, n=n, nonce=f"{epoch}-{n}", time=0.0, **given)


ONCE = Retry(attempts=1)
