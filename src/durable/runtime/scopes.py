"""Where the running code stands: in a workflow's scope, in a step's body, or outside any run.

A scope belongs to one strand (a task, or a thread for sync code). A durable call is legal if the
strand that makes it owns the scope it is made in: then its path depends on the code alone. The
check is at the call, not at the await, so `asyncio.gather(a(1), b(2))` and
`task_group.start_soon(a, 1)` are right, while steps inside a helper that runs as a task of its
own are refused: which helper comes first would be chance.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from durable.errors import NeverAwaited, NotInWorkflow, NotRecorded, UnfinishedCalls, UsageError
from durable.protocol import values
from durable.protocol.paths import Ordinals
from durable.runtime.closing import Finished
from durable.runtime.turns import is_bare_thread, strand

if TYPE_CHECKING:
    from durable.runtime.calls import Call
    from durable.runtime.execution import Execution
    from durable.runtime.inside import Inside
    from durable.runtime.ownership import Ownership


@dataclass(eq=False)
class Strand:
    """A line of code that goes on by itself: the workflow function, or a branch of it.

    An inline workflow and a block under a deadline have scopes of their own in the same strand.

    Attributes:
        standing: how many durable waits it stands in, one inside the other; see `parking`.
    """

    standing: int = 0


@dataclass
class Scope:
    """One level of the call tree.

    Attributes:
        prefix: path prefix of the calls made here; empty for the root.
        owner: the strand that may make calls here; 0 until the strand has begun.
        decided: a framework decision closed this branch; its calls record nothing more.
        unfinished: calls made here that have no outcome yet, by path; of what is no single call
            the path alone.
        strand: the line of code that this scope is part of.
        time: of the latest outcome handed over here, in store time.
    """

    execution: Execution
    prefix: str
    parent: Scope | None = None
    owner: int = 0
    decided: bool = False
    unfinished: dict[str, Call[Any] | None] = field(default_factory=dict)
    strand: Strand = field(default_factory=Strand)
    time: float = 0.0
    ordinals: Ordinals = field(init=False)

    def __post_init__(self) -> None:
        self.ordinals = Ordinals(self.prefix)

    def within(self, prefix: str) -> Scope:
        """A scope inside this one, in the same strand."""
        return Scope(self.execution, prefix, self, strand=self.strand)

    def branch(self, prefix: str) -> Scope:
        """A scope inside this one for a strand of its own."""
        return Scope(self.execution, prefix, self)

    def is_decided(self) -> bool:
        """Whether a decision closed this branch or one around it."""
        scope: Scope | None = self
        while scope is not None:
            if scope.decided:
                return True
            scope = scope.parent
        return False

    def reserve(self, name: str, key: str | None = None, call: Call[Any] | None = None) -> str:
        """The path of a call of `name` made here now."""
        path = self.ordinals.path(name, key)
        self.unfinished[path] = call
        return path

    def finished(self, path: str) -> None:
        self.unfinished.pop(path, None)

    def heard(self, time: float) -> None:
        """An outcome of that time is handed over here, or a branch that knows of it has ended."""
        self.time = max(self.time, time)

    def now(self) -> float:
        """The time of the latest outcome handed over here or in a scope around."""
        around = self.parent.now() if self.parent is not None else 0.0
        return max(self.time, around)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make this strand the owner; at exit by return every call must have finished."""
        self.owner = strand()
        token = here.set(self)
        try:
            yield
        except UsageError:
            raise  # perhaps of the very word that would have awaited them
        except Exception as e:
            self._warn_of_unawaited(e)
            raise
        finally:
            here.reset(token)
        self.check_finished()

    def _warn_of_unawaited(self, error: Exception) -> None:
        """The code of this scope raised: a call that it forgot to await may be the reason."""
        calls = self.unfinished.items()
        forgotten = sorted(path for path, call in calls if call and not call.begun)
        if not forgotten or self.execution.closing is not None:
            return
        try:
            warnings.warn(
                f"{self.describe()} of run {self.execution.run_id!r} raised, and had made calls "
                f"that it never awaited, so they were not executed: {', '.join(forgotten)}",
                NeverAwaited,
                stacklevel=1,
            )
        except NeverAwaited as warned:  # where it is made an error, the run's own comes first
            error.add_note(str(warned))

    def check_finished(self) -> None:
        """The code of this scope has come to its end without an error.

        Raises:
            UnfinishedCalls: not all calls made here have finished.
        """
        if self.unfinished:
            calls = ", ".join(sorted(self.unfinished))
            raise UnfinishedCalls(
                f"run {self.execution.run_id!r} left {self.describe()} while these calls were "
                f"never awaited or had not finished: {calls}",
                hint="await each durable call, or the task that wraps it, before returning",
            )
        if self.parent is not None:
            self.parent.heard(self.time)

    def describe(self) -> str:
        return f"branch {self.prefix.rstrip('/')!r}" if self.prefix else "the workflow function"


class Current(msgspec.Struct, eq=False):  # made for every attempt
    """What a step's body may know about itself; see `durable.current`.

    Attributes:
        attempt: 1 for the first attempt of this step.
    """

    _owner: Ownership
    _path: str = ""
    attempt: int = 1
    _inside: Inside | None = None

    def __repr__(self) -> str:
        return f"<call {self._path!r} of run {self.run_id!r}, attempt {self.attempt}>"

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._owner.run_id

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        return self._owner.workflow

    @property
    def epoch(self) -> int:
        """The run's fencing token: higher than that of every earlier owner of the run.

        Pass it to an outside system that rejects lower ones.
        """
        return self._owner.epoch

    @property
    def version(self) -> str:
        """Of the workflow, `@workflow(version=)`, at the start of this run.

        `durable run` of newer code does not change it.
        """
        return self._owner.version

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this call, on whatever worker, and for no other call.

        Pass it to outside systems that drop repeated requests.
        """
        return self._owner.key(self._path)

    @property
    def tick(self) -> datetime | None:
        """The moment for which a schedule started the run, in UTC; None if none did.

        A run that starts late, or is made up for, still has the tick that it is for.
        """
        tick = self._owner.tick
        return datetime.fromtimestamp(tick, UTC) if tick else None

    def place(self) -> tuple[Ownership, str, int]:
        """What a child process needs to make one like it."""
        return self._owner, self._path, self.attempt

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this attempt any more.

        Its time ran out, or its run was cancelled or goes on elsewhere.

        A thread cannot be stopped from outside: a long sync body looks here now and then, and
        returns. What it returns or raises then is ignored, but for a cancelled run, which waits
        a little for its threads.
        """
        return self._inside is not None and self._inside.flag.is_set

    @property
    def heartbeat_details(self) -> object:
        """What an earlier attempt of this call last gave to `heartbeat`; None if nothing."""
        told = self._inside.told if self._inside is not None else msgspec.UNSET
        return None if isinstance(told, msgspec.UnsetType) else values.decode(told)

    def heartbeat(self, details: object = None) -> None:
        """Say that the body of this step is alive, and how far it has come.

        The details are given to the next attempt as `heartbeat_details`, also after a crash: they
        are written in the background, at most once a second, so the last second may be missing
        then. Does not wait. Where the step has a `heartbeat_timeout`, it starts anew.

        In a thread that nobody waits for any more, this ends the body by an exception that is no
        `Exception`.

        Args:
            details: anything that a step could return without an annotation.

        Raises:
            NotInWorkflow: this is no step's body.
            InvalidArguments: the details cannot be stored.
        """
        self.inside("heartbeat").heartbeat(
            values.encode_argument(details, "details of a heartbeat")
        )

    def inside(self, word: str) -> Inside:
        """The attempt that is running, for a word that needs one."""
        if self._inside is None:
            raise NotInWorkflow(f"{word}() needs the body of a step that runs in its worker")
        return self._inside


here: ContextVar[Scope | Current | None] = ContextVar("durable.here", default=None)
executing: ContextVar[Execution | None] = ContextVar("durable.executing", default=None)
in_this_process: WeakSet[Execution] = WeakSet()  # executions that have not come to their end


def unwinding() -> bool:
    """Whether the run goes on later or elsewhere, and its code only leaves this process.

    That is so when the run is parked, handed over or has lost its worker's lease. A `finally`
    block runs then too, and will run again. No durable call can be made in it; what it does
    itself should be left undone if it is meant for the end of the run. It is False while a
    cancelled run cleans up, and outside any run.
    """
    execution = executing.get()
    closing = execution.closing if execution is not None else None
    return closing is not None and not isinstance(closing, Finished)


def current() -> Current:
    """The step or workflow that is running.

    Raises:
        NotInWorkflow: nothing durable is running here.
    """
    place = here.get()
    if isinstance(place, Current):
        return place
    if isinstance(place, Scope):
        return place.execution.current()
    raise NotInWorkflow("current() was called outside a workflow and outside a step")


def calling_scope(what: object) -> Scope | None:
    """The scope in which a call is being made; None outside a run and inside a step's body.

    Raises:
        NotInWorkflow: the strand does not own the scope.
    """
    place = here.get()
    if place is None:
        _warn_of_a_lost_call(what)
    if not isinstance(place, Scope):
        return None
    if place.owner != strand():
        raise NotInWorkflow(
            f"{what} was called in a task or thread that run {place.execution.run_id!r} did not "
            f"start, inside {place.describe()}: its place in the order of calls would be chance",
            hint="make the call in the workflow's own task, or run the helpers by "
            "`durable.gather(helper(1), helper(2))` or `durable.map(helper, items)`",
        )
    return place


def _warn_of_a_lost_call(what: object) -> None:
    """Threads of an executor carry no context, so a workflow's call there is like one outside.

    It cannot be told from code that has nothing to do with a run, so it is no error.
    """
    if in_this_process and is_bare_thread() and executing.get() is None:
        warnings.warn(
            f"{what} was called in thread {threading.current_thread().name!r} while runs are "
            "executed in this process. If one of them was meant, the call is not recorded: use "
            "`durable.gather` or `durable.map`, or make the call in the workflow itself",
            NotRecorded,
            stacklevel=4,
        )
