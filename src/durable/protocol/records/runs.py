"""What a run's folder says of the run itself: asked for, owned, cancelled, over."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from durable.protocol.failures import Failure

Status = Literal["completed", "failed", "cancelled"]

NEVER = 0.0  # a deadline that is none; msgspec leaves out a default only if it is this very object


class LockRequest(msgspec.Struct, omit_defaults=True):
    """The singleton that a run is to be: see durable.protocol.singletons.

    `max_wait`, `ttl` and `pause` (between two of the `attempts`) in seconds.
    """

    key: str
    on_conflict: Literal["skip", "raise", "join", "wait", "queue", "replace"]
    max_wait: float | None = None
    ttl: float | None = None
    attempts: int | None = None
    pause: float = 0.0


class Parent(msgspec.Struct, omit_defaults=True):
    """The run that started a run, and by which of its calls.

    `owned`: the child is cancelled when the parent is over; else it goes on.
    """

    run: str
    instance: str
    path: str
    owned: bool = True


class Debounce(msgspec.Struct, omit_defaults=True):
    """The run begins once starts with its key have been quiet for a while.

    Until it is `closed` each further start puts its own request in the place of the one before.
    `due`: it begins then, unless another start moves that; `latest`: not later than that.
    """

    key: str
    due: float
    latest: float
    closed: bool = False


class Start(msgspec.Struct, omit_defaults=True):
    """`runs/<run>/start`: which instance an id means now, and what it was asked to do."""

    workflow: str
    input: msgspec.Raw  # values.encode_call: {"args": [...], "kwargs": {...}}
    instance: str
    nonce: str
    queue: str = "default"
    version: str = ""
    tags: dict[str, str] = {}
    created: float = 0.0
    tombstone: bool = False
    parent: Parent | None = None
    deadline: float = NEVER  # when the run fails unless it is over
    tick: float = 0.0  # of the schedule that started it
    lock: LockRequest | None = None
    limited: bool = False  # it needs a slot of its queue
    priority: int = 0  # in its queue; lower goes first
    label: str = ""  # that a worker must have to run it
    workflow_version: str = ""  # `@workflow(version=)`
    pinned: bool = False  # only workers that have that version may run it
    origin: Origin | None = None  # of the records that were kept from an earlier instance
    dedup_key: str = ""  # of the runs of its queue that carry it one goes on
    debounce: Debounce | None = None
    forks: list[Fork] = []  # by which it came to its past, the earliest first

    @property
    def pin(self) -> str:
        """The version that a worker must have; empty: any will do."""
        return self.workflow_version if self.pinned else ""

    @property
    def is_collecting(self) -> bool:
        """Whether its request may still be replaced: it has not begun."""
        return self.debounce is not None and not self.debounce.closed

    def first(self) -> Origin:
        """The instance in which the record began; this one unless records were kept."""
        return self.origin or Origin(self.instance, self.created)


class Origin(msgspec.Struct, array_like=True):
    """The instance that a record was first made in: time and chance of a run are still its."""

    instance: str
    created: float


class Fork(msgspec.Struct, array_like=True):
    """Up to this epoch the record is another run's, made for this instance: see `Epoch`."""

    instance: str
    epoch: int


class Epoch(msgspec.Struct, omit_defaults=True):
    """`epochs/<n>`: the run has a new owner.

    `seen` tells what the new owner's list contained of each earlier epoch: the highest order
    number and the numbers missing below it. `alone`: resumed with no other run in its process.
    """

    epoch: int
    worker: str
    label: str
    why: Literal["wake", "takeover", "drain", "late"]
    nonce: str
    time: float
    seen: dict[str, Seen] = {}
    alone: bool = False
    patches: list[str] = []  # of the records that a repair has left out


class Seen(msgspec.Struct, array_like=True):
    highest: int
    holes: list[int]


class Cancel(msgspec.Struct, omit_defaults=True):
    """`cancel`: somebody asked for this instance to be cancelled; the first who asked counts.

    `by`: who, for people.
    """

    nonce: str
    time: float
    reason: str = ""
    by: str = ""


class Holder(msgspec.Struct, omit_defaults=True):
    """The run that held a singleton's lock, and since when."""

    run: str
    instance: str
    since: float


class Result(msgspec.Struct, omit_defaults=True):
    """`result`: the outcome of the instance. Once it exists, the instance is over."""

    status: Status
    nonce: str
    epoch: int
    time: float
    value: msgspec.Raw | UnsetType = UNSET
    failure: Failure | None = None
    skipped: Holder | None = None  # it never began, because that run held its lock
    joined: Holder | None = None  # its outcome is that run's
