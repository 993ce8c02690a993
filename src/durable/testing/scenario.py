"""One run of a workflow whose worker may die at one call of the store, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import unquote

import anyio
import msgspec

from durable import sync
from durable.client.replaying import Replay, compare
from durable.protocol import names
from durable.protocol.records import Group, Result, Step
from durable.runtime import facts
from durable.runtime.definitions import WorkflowDefinition
from durable.store import Stored
from durable.store.memory import Fault, Verb
from durable.testing.clock import VirtualClock
from durable.testing.processes import ProcessBackend
from durable.testing.world import World

T = TypeVar("T")

Place = tuple[str, str]  # a run and a path in it


@dataclass(frozen=True)
class Crash:
    """Where the first worker dies: at its n-th call, before it is applied or right after."""

    call: int
    applied: bool

    def describe(self, verb: Verb, name: str) -> str:
        """For people."""
        when = "after it was applied" if self.applied else "before it was applied"
        return f"at store call {self.call}, {verb} {name}, {when}"


@dataclass(kw_only=True)
class Seen:
    """What one run came to.

    Attributes:
        outcome: what was recorded in the end, as text; `trouble` if the run did not end.
        steps: recorded calls of all runs, each with its outcome as text.
        crashed_at: the call at which the worker died; None if it did not.
        recorded: places that were recorded when it died.
        changed: objects that were there when it died, and changed or vanished since.
        rerun: recorded places whose bodies ran again all the same.
        body_runs: how often the body of each call began.
        replay: today's code against the record.
    """

    outcome: str
    trouble: str = ""
    steps: dict[Place, str] = field(default_factory=dict)
    calls: int = 0
    crashed_at: tuple[Verb, str] | None = None
    recorded: set[Place] = field(default_factory=set)
    changed: list[str] = field(default_factory=list)
    rerun: list[Place] = field(default_factory=list)
    body_runs: dict[Place, int] = field(default_factory=dict)
    replay: Replay | None = None


class CrashingBackend(ProcessBackend):
    """The bucket as the worker sees it that dies at one of its calls."""

    crash: Crash | None = None
    calls = 0
    armed = False
    on_death: Callable[[Verb, str], None]

    async def _suffer(
        self, fault: Fault | None, verb: Verb, name: str, apply: Callable[[], T]
    ) -> T:
        await self._only_the_living()
        if not self.armed:
            return await super()._suffer(fault, verb, name, apply)
        self.calls += 1
        if self.crash is None or self.calls != self.crash.call:
            return await super()._suffer(fault, verb, name, apply)
        if self.crash.applied:
            apply()
        self.on_death(verb, name)
        await anyio.sleep_forever()
        raise AssertionError("nothing but the end of its process ends this call")


class CrashWorld(World):
    """A world whose first worker dies as told; the next takes over and lives."""

    def __init__(self, clock: VirtualClock, *, seed: int, start: datetime) -> None:
        super().__init__(clock, seed=seed, start=start)
        self.first = CrashingBackend(self.bucket, faults=self.faults, changed=self._changed)
        self.first.on_death = self._on_death
        self._is_first = True
        self._crashed_at: tuple[Verb, str] | None = None
        self._there: dict[str, int] = {}
        self._recorded: set[Place] = set()
        self._began: dict[Place, int] = {}

    def arm(self, crash: Crash | None) -> None:
        """From now on calls are counted, and one of them may be the last."""
        self.first.crash = crash
        self.first.armed = True

    def _make_backend(self) -> ProcessBackend:
        if self._is_first:
            self._is_first = False
            return self.first
        return super()._make_backend()

    def _on_death(self, verb: Verb, name: str) -> None:
        self._crashed_at = (verb, name)
        self._there = self._facts()
        self._recorded = set(self._steps())
        self._began = dict(self.body_runs)
        self._process.kill()
        self._tasks.start_soon(self._begin_process)

    # -- afterwards -------------------------------------------------------------------------------

    async def seen(
        self, handle: sync.Handle[Any], definition: WorkflowDefinition, trouble: str
    ) -> Seen:
        """What came of it."""
        now = self._facts()
        result = self.bucket.peek(names.result(handle.id, handle.instance))
        found = None if trouble else await facts.load(self.client.store, handle.id)
        return Seen(
            outcome=_outcome(result.body if result else None), trouble=trouble,
            steps={place: _text(step) for place, step in self._steps().items()},
            calls=self.first.calls, crashed_at=self._crashed_at, recorded=self._recorded,
            changed=[name for name, g in self._there.items() if now.get(name) != g],
            rerun=[p for p in self._recorded if self.body_runs[p] != self._began.get(p, 0)],
            body_runs=dict(self.body_runs),
            replay=await compare(self.client.store, handle.id, found, definition)
            if found is not None else None,
        )  # fmt: skip

    def _facts(self) -> dict[str, int]:
        """What is recorded for good, by name: everything in the folders of instances."""
        there = {}
        for name in self._names("runs/"):
            stored = self.bucket.peek(name)
            if stored is not None and not name.endswith("/start"):
                there[name] = stored.generation
        return there

    def _steps(self) -> dict[Place, Step]:
        found: dict[Place, Step] = {}
        for name in self._names("runs/"):
            run = unquote(name.split("/")[1])
            fact = names.parse_fact(run, name)
            stored = self.bucket.peek(name)
            if fact is not None and stored is not None:
                found |= {(run, step.path): step for step in _outcomes(fact.kind, stored)}
        return found

    def _names(self, prefix: str) -> list[str]:
        with self.bucket.lock:
            return [name for name in self.bucket.names.since(prefix) if name.startswith(prefix)]


def _outcomes(kind: str, stored: Stored) -> list[Step]:
    """The recorded outcomes of calls that this object holds."""
    match kind:
        case "steps":
            return [msgspec.json.decode(stored.body or b"", type=Step)]
        case "groups":
            return msgspec.json.decode(stored.body or b"", type=Group).steps
    return []


def _text(step: Step) -> str:
    if step.failure is not None:
        return f"raised {step.failure.type}: {step.failure.message}"
    if isinstance(step.value, msgspec.UnsetType):
        return step.outcome
    return f"returned {bytes(step.value).decode()}"


def _outcome(body: bytes | None) -> str:
    if body is None:
        return ""
    result = msgspec.json.decode(body, type=Result)
    if result.failure is not None:
        return f"raised {result.failure.type}: {result.failure.message}"
    if isinstance(result.value, msgspec.UnsetType):
        return result.status
    return f"returned {bytes(result.value).decode()}"
