"""What executions are given by their worker, and what they tell its observers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec

from durable.protocol.records import Start, Step
from durable.runtime import starting
from durable.runtime.definitions import StepDefinition
from durable.runtime.loops import Loop
from durable.store import Refused, Store, Written
from durable.system import System, cores


class Progress(msgspec.Struct, frozen=True):
    """What an observer of an execution is told.

    `kind`: `begin` (a body starts), `retry` (an attempt failed, the next follows in `seconds`),
    `record` (an outcome is recorded), `replay` (a recorded outcome was handed over), `drift`
    (another call is recorded there), `unrecorded` (a replay has come to the end of the record).
    """

    kind: str
    path: str
    name: str
    attempt: int = 1
    failed: bool = False
    seconds: float = 0.0

    @classmethod
    def of(cls, kind: str, path: str, name: str, step: Step | None = None) -> Progress:
        """Of the call at this path, and of its outcome."""
        failed = step is not None and step.outcome in {"error", "cancelled"}
        return cls(kind, path, name, failed=failed)


def _as_many_as_cores() -> anyio.CapacityLimiter:
    return anyio.CapacityLimiter(cores())


def _recorded(run: str) -> None:
    """Nobody needs to know."""


def own_body(definition: StepDefinition) -> Callable[..., Any]:
    """The function that was decorated."""
    return definition.fn


Observer = Callable[[str, Progress], None]


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What every execution of one worker shares.

    Attributes:
        trusted: whether this worker still holds its lease (promise P11); asked before every
            body and every write, from any thread.
        steps: limit of threads for sync step bodies.
        workflows: limit of threads for sync workflow functions.
        processes: limit of child processes for step bodies.
        observe: told of every call's progress, in the event loop; None: nobody watches.
        recorded: told which run has recorded that a call has come further.
        body_of: the function that runs as a step's body; tests put others in its place.
        replay_only: no body runs and nothing is written: the first unrecorded call ends the
            execution (`durable replay`).
        crowded: whether runs wait for a place in this worker.
        always_park: park every wait at once, however short.
        launch: starts a child's run; what became of its `start`.
        loop: the event loop, in which all of this is made.
    """

    store: Store
    system: System
    trusted: Callable[[], bool]
    steps: anyio.CapacityLimiter
    workflows: anyio.CapacityLimiter
    processes: anyio.CapacityLimiter = msgspec.field(default_factory=_as_many_as_cores)
    observe: Observer | None = None
    recorded: Callable[[str], None] = _recorded
    body_of: Callable[[StepDefinition], Callable[..., Any]] = own_body
    replay_only: bool = False
    crowded: Callable[[], bool] = lambda: False
    always_park: bool = False
    launch: Callable[[Store, str, Start], Awaitable[Written | Refused]] = starting.start
    loop: Loop = msgspec.field(default_factory=Loop)
