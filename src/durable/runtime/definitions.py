"""What a decorated function is to the runtime: names, signature, options. No behaviour.

The runtime receives workflows as a mapping of these; it never imports the decorators.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from durable.protocol import names
from durable.protocol.queues import Queue
from durable.protocol.records import NEVER, Debounce, LockRequest, Start
from durable.protocol.retries import Retry
from durable.protocol.schedules import Schedule
from durable.protocol.singletons import Singleton

Durability = Literal["each", "group"]
OnCrashLoop = Literal["attention", "fail"]

CLEANUP_TIMEOUT = 300.0  # seconds; see WorkflowDefinition


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A function as decorated.

    Attributes:
        name: its `__qualname__`, or the name given.
        hints: resolved annotations by parameter name, and `return`.
        is_async: an `async def`; else it runs in a thread.
    """

    name: str
    fn: Callable[..., Any]
    signature: inspect.Signature
    hints: Mapping[str, object]
    is_async: bool

    @property
    def returns(self) -> object:
        """The return annotation; None means unannotated."""
        return self.hints.get("return")


class StepDefinition(Definition, frozen=True, kw_only=True):
    """A step and its options.

    Attributes:
        timeout: seconds that one attempt may take; None: as long as it likes.
        heartbeat_timeout: seconds that may pass between two heartbeats; None: as many as it likes.
        process: it runs in a child process.
        durability: whether each outcome is recorded by itself, or with others (`grouping`).
        at_most_once: each attempt's body is claimed before it begins, and never begun again.
        undo: what takes the step back if the run does not complete.
    """

    retry: Retry = msgspec.field(default_factory=Retry)
    check_args: bool = True
    timeout: float | None = None
    heartbeat_timeout: float | None = None
    at_most_once: bool = False
    undo: StepDefinition | None = None
    process: bool = False
    durability: Durability = "each"


class WorkflowDefinition(Definition, frozen=True, kw_only=True):
    """A workflow and its options.

    Attributes:
        timeout: seconds from a run's start until it fails unless it is over; None: never.
        version: of the code, for those who tell runs apart by it.
        pinned: its runs are for workers that have this version alone.
        others: the other versions of the workflow that are registered, the newest first.
        schedule: by which workers start it themselves.
        singleton: whose runs go on one at a time.
        limits: of its queue, if the code gives it any.
        label: that a worker must have to run it; empty: any may.
        events: the types of the events that it waits for, by name.
        cleanup_timeout: seconds that a cancelled run may take to clean up, and an undo action
            for each attempt.
        on_crash_loop: what becomes of a run that kills every process which carries it.
    """

    queue: str = "default"
    timeout: float | None = None
    version: str = ""
    pinned: bool = False
    others: tuple[WorkflowDefinition, ...] = ()
    schedule: Schedule | None = None
    singleton: Singleton | None = None
    limits: Queue | None = None
    label: str = ""
    events: Mapping[str, object] = msgspec.field(default_factory=dict)
    cleanup_timeout: float = CLEANUP_TIMEOUT
    on_crash_loop: OnCrashLoop = "attention"

    def deadline(self, started: float, debounce: Debounce | None = None) -> float:
        """The deadline of a run that starts then; 0: none. Stored in `start`.

        Args:
            debounce: what holds it back; its time counts from the end of that.
        """
        if self.timeout is None:
            return NEVER
        return self.timeout + (started if debounce is None else debounce.due)

    def for_runs_of(self, version: str, *, pinned: bool = False) -> WorkflowDefinition | None:
        """The code for a run that was started by that version: its own where that is here.

        Args:
            pinned: no other will do; None if it is not here.
        """
        for known in (self, *self.others):
            if known.version == version:
                return known
        return None if pinned else self

    @property
    def is_limited(self) -> bool:
        """Whether its runs need a slot of their queue."""
        return self.limits is not None and self.limits.is_limited

    def debounced(self, key: str, now: float) -> Debounce | None:
        """What holds back a run that is started with that key; None: it has none.

        Raises:
            UsageError: its queue has no quiet time.
        """
        if not key:
            return None
        return (self.limits or Queue(self.queue)).debounced(key, now)

    def lock(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> LockRequest | None:
        """The lock that a run with these arguments needs."""
        return None if self.singleton is None else self.singleton.request(args, kwargs)


Workflows = Mapping[str, WorkflowDefinition]
"""By name. Of several versions the one defined last, which has the others."""


def serves(workflows: Workflows, workflow: str, pin: str = "") -> bool:
    """Whether there is code for runs of this workflow.

    Args:
        pin: the version that the run is pinned to, if it is.
    """
    known = workflows.get(workflow)
    return known is not None and (not pin or known.for_runs_of(pin, pinned=True) is not None)


def code_for(workflows: Workflows, start: Start) -> WorkflowDefinition | None:
    """The code for a run: of its own version, else, unless it is pinned, that defined last."""
    known = workflows.get(start.workflow)
    return known and known.for_runs_of(start.workflow_version, pinned=start.pinned)


def shown(workflows: Workflows) -> list[str]:
    """What these serve, as workers show it: each workflow, and each version that there is."""
    found = set(workflows)
    for name, newest in workflows.items():
        versions = {d.version for d in (newest, *newest.others)} - {""}
        found |= {names.of_version(name, version) for version in versions}
    return sorted(found)


undoable: dict[str, StepDefinition] = {}
"""The steps of this process that have an undo action, by name: undoing starts from records."""
