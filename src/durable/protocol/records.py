"""What the objects hold: readable JSON, one struct per kind.

Evolution: fields are only ever added, with a default; unknown fields are ignored on reading; a
field never changes its meaning. `nonce` is the write's own mark (promise P8) and stands in the
object's metadata too. Times are seconds since the epoch, UTC, by the store's clock.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from durable.protocol.failures import Failure
from durable.protocol.schedules import Schedule

Status = Literal["completed", "failed", "cancelled"]

NEVER = 0.0  # a deadline that is none; msgspec leaves out a default only if it is this very object


class LockRequest(msgspec.Struct, omit_defaults=True):
    """The singleton that a run is to be: see durable.protocol.singletons.

    `max_wait` and `ttl` in seconds.
    """

    key: str
    on_conflict: Literal["skip", "raise", "join", "wait", "queue", "replace"]
    max_wait: float | None = None
    ttl: float | None = None


class Parent(msgspec.Struct, omit_defaults=True):
    """The run that started a run, and by which of its calls.

    `owned`: the child is cancelled when the parent is over; else it goes on.
    """

    run: str
    instance: str
    path: str
    owned: bool = True


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

    @property
    def pin(self) -> str:
        """The version that a worker must have; empty: any will do."""
        return self.workflow_version if self.pinned else ""

    def first(self) -> Origin:
        """The instance in which the record began; this one unless records were kept."""
        return self.origin or Origin(self.instance, self.created)


class Origin(msgspec.Struct, array_like=True):
    """The instance that a record was first made in: time and chance of a run are still its."""

    instance: str
    created: float


class Slept(msgspec.Struct, array_like=True):
    """A sleep that its owner handed over under this order number."""

    n: int
    path: str


Outcome = Literal["value", "error", "cancelled", "abandoned"]


class Step(msgspec.Struct, omit_defaults=True):
    """`steps/<path>`: the outcome of one durable call.

    `slept`: sleeps handed over before it. A sleep has no outcome object of its own; its place in
    the order is known from whatever was recorded next.

    `patches`: what `patched` had said yes to before it, as far as no earlier record says so.
    """

    path: str
    name: str
    outcome: Outcome
    epoch: int
    n: int  # order among the records of this epoch's owner
    nonce: str
    time: float
    kind: str = "step"
    digest: str = ""  # digests.of_call; empty: not compared
    value: msgspec.Raw | UnsetType = UNSET  # values.encode
    failure: Failure | None = None
    attempt: int = 1
    note: str = ""  # who recorded it by hand, and why
    published: dict[str, msgspec.Raw] = {}  # by the body; not known to be in `state/` yet
    slept: list[Slept] = []
    cleanup: bool = False  # made by a cancelled run that cleaned up
    patches: list[str] = []


class Wait(msgspec.Struct, omit_defaults=True):
    """`waits/<path>`: a wait has begun. `due` is its one absolute deadline; None: it has none."""

    path: str
    kind: str
    name: str
    epoch: int
    nonce: str
    time: float
    due: float | None = None


class Take(msgspec.Struct, omit_defaults=True):
    """`takes/<k>`: the k-th decision of the instance's inbox, and the outcome of its call.

    What competes for something is decided in this one chain: which wait gets an event, whether
    the event or the deadline came first, which branch of a select won.

    `event`: the key of the event that was taken, whose value stands here too.
    """

    k: int
    path: str
    kind: str
    name: str
    outcome: Outcome
    epoch: int
    n: int
    nonce: str
    time: float
    event: str = ""
    value: msgspec.Raw | UnsetType = UNSET
    failure: Failure | None = None
    slept: list[Slept] = []
    patches: list[str] = []
    note: str = ""  # who recorded it by hand, and why

    def as_step(self) -> Step:
        """The same outcome as an item of the journal."""
        return Step(
            path=self.path, name=self.name, kind=self.kind, outcome=self.outcome,
            epoch=self.epoch, n=self.n, nonce=self.nonce, time=self.time, value=self.value,
            failure=self.failure, slept=self.slept, patches=self.patches, note=self.note,
        )  # fmt: skip


class Event(msgspec.Struct, omit_defaults=True):
    """`events/<name>/<key>`: something sent to the run."""

    name: str
    key: str
    value: msgspec.Raw
    nonce: str
    time: float


class Attempt(msgspec.Struct, omit_defaults=True):
    """`attempts/<path>/<n>`: the n-th attempt failed; the next is due at `due`.

    `began`: when the first attempt of the call began, as far as it is known. `details`: what a
    body of the call last gave to `heartbeat`.
    """

    path: str
    attempt: int
    failure: Failure
    due: float
    nonce: str
    time: float
    epoch: int = 0
    began: float = 0.0
    details: msgspec.Raw | UnsetType = UNSET  # values.encode

    def as_wait(self) -> Wait:
        """The wait for the attempt that follows."""
        return Wait(
            path=self.path, kind="step", name="", epoch=self.epoch, nonce=self.nonce,
            time=self.time, due=self.due,
        )  # fmt: skip


class Begin(msgspec.Struct, omit_defaults=True):
    """`starts/<path>/<n>`: the n-th body of an at-most-once step begins.

    Only the owner whose nonce it is runs that body. Without an outcome or a failed attempt beside
    it, what became of the body is not known.
    """

    path: str
    attempt: int
    nonce: str
    time: float
    epoch: int


class Beat(msgspec.Struct, omit_defaults=True):
    """`beats/<path>/<epoch>`: what the body of a call last gave to `heartbeat` in that epoch."""

    path: str
    attempt: int
    epoch: int
    nonce: str
    time: float
    details: msgspec.Raw  # values.encode


class Published(msgspec.Struct, omit_defaults=True):
    """`state/<name>/<epoch>`: progress as last published in that epoch; the highest one counts."""

    name: str
    epoch: int
    nonce: str
    time: float
    value: msgspec.Raw  # values.encode


class Undo(msgspec.Struct, omit_defaults=True):
    """`undo/<path>`: the step is about to begin; unless the run completes it is to be undone.

    `n` counts the registrations of the epoch's owner: what was registered last is undone first.
    """

    path: str
    name: str  # of the step
    input: msgspec.Raw  # values.encode_call
    epoch: int
    n: int
    nonce: str
    time: float


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


class Marker(msgspec.Struct, omit_defaults=True):
    """`live/<queue>/<hash8>-<run>`: the run needs a worker, or has one.

    `holder` is a worker id and `owner` the token of that take; both empty: unowned.
    `request` is the whole start request, so that a worker can create a missing `start`.
    `flagged`: the run has an attention hint, to be removed with the marker.
    `timer`: the name of the timer hint that was due when the marker was made, with the hint's
    generation: its holder deletes it once nothing waits for it any more.
    """

    run: str
    instance: str
    workflow: str
    nonce: str
    queue: str = "default"
    version: str = ""
    holder: str = ""
    owner: str = ""
    why: Literal["start", "wake", "takeover", "drain"] = "start"
    created: float = 0.0  # of the run; the object's own time moves with every overwrite in GCS
    flagged: bool = False
    request: Start | None = None
    timer: str = ""
    timer_generation: int = 0
    slot: int = -1  # of a limited queue: where its slot is to be found
    pin: str = ""  # the version that a worker must have


class Timer(msgspec.Struct, omit_defaults=True):
    """`timers/<due>/<run>/<instance>/<wait>`: wake this run at `due`; None: others wake it.

    It says all that a fresh marker needs, so that whoever wakes the run reads nothing else.
    `path` is that of the wait; `waits_for` says it in words.
    """

    run: str
    instance: str
    workflow: str
    queue: str
    nonce: str
    path: str
    due: float | None = None
    version: str = ""
    created: float = 0.0  # of the run
    waits_for: str = ""
    pin: str = ""  # as in the marker


class Lease(msgspec.Struct, omit_defaults=True):
    """`workers/<id>`: a worker's lease, standing for every run it holds.

    `ttl` and `margin` in seconds. `lock_file` with `boot` lets a neighbour on the same host
    prove the holder's death (see durable.runtime.locks).
    """

    worker: str
    ttl: float
    margin: float
    nonce: str
    label: str = ""
    pid: int = 0
    boot: str = ""
    lock_file: str = ""
    state: Literal["alive", "dead"] = "alive"


class Presence(msgspec.Struct, omit_defaults=True):
    """`presence/<id>`: shown once a minute by every worker; never judged as a lease.

    `full`: it has no room, so lists are not left to it.
    """

    worker: str
    nonce: str
    label: str = ""
    pid: int = 0
    queues: list[str] = []
    workflows: list[str] = []
    runs: int = 0
    full: bool = False


class Attention(msgspec.Struct, omit_defaults=True):
    """`attention/<queue>/<run>`: parked for a human or for other code.

    `tried`: the code versions that have been woken for it, each once.
    """

    run: str
    instance: str
    workflow: str
    reason: str
    message: str
    nonce: str
    time: float
    hint: str = ""
    path: str = ""
    recorded: str = ""
    asked: str = ""
    tried: list[str] = []
    pin: str = ""  # the version that a worker must have


class History(msgspec.Struct, omit_defaults=True):
    """`history/<day>/<hour>/<time>-<run>`: a finished run, for lists and search."""

    run: str
    instance: str
    workflow: str
    status: Status
    started: float
    ended: float
    nonce: str
    tags: dict[str, str] = {}
    why: str = ""

    @classmethod
    def of(cls, run: str, start: Start, result: Result, *, why: str, nonce: str) -> History:
        """The entry of a run that came to this result."""
        return cls(
            run=run, instance=start.instance, workflow=start.workflow, status=result.status,
            started=start.created, ended=result.time, nonce=nonce, tags=start.tags, why=why,
        )  # fmt: skip


class LockRecord(msgspec.Struct, omit_defaults=True):
    """`locks/<key>`: a singleton's lock. Held by a run; free when that instance is over.

    An empty `run`: released by hand. `ttl` in seconds from `since`; None: for as long as it runs.
    """

    key: str
    run: str
    instance: str
    workflow: str
    since: float
    nonce: str
    ttl: float | None = None


class Waiter(msgspec.Struct, omit_defaults=True):
    """`locks/<key>/wait/<time>-<run>`: a run that waits for the lock, parked."""

    key: str
    run: str
    instance: str
    since: float
    nonce: str


class QueueRecord(msgspec.Struct, omit_defaults=True):
    """`queues/<queue>/settings`: the limits of a queue. See durable.protocol.queues.

    `rate`: how many starts, in how many seconds.
    """

    name: str
    nonce: str
    concurrency: int | None = None
    rate: list[float] | None = None
    keep_slot: bool = False


class Slot(msgspec.Struct, omit_defaults=True):
    """`queues/<queue>/slots/<i>`: this instance may go on."""

    run: str
    instance: str
    workflow: str
    since: float
    nonce: str


class Pending(msgspec.Struct, omit_defaults=True):
    """`queues/<queue>/pending/<priority>-<time>-<run>`: it waits for a slot.

    `request` is the whole start request, so that whoever gives it a slot can create a missing
    `start`; None: `start` is known to be there.
    """

    run: str
    instance: str
    workflow: str
    nonce: str
    created: float = 0.0  # of the run
    request: Start | None = None


class DedupClaim(msgspec.Struct, omit_defaults=True):
    """`queues/<queue>/keys/<key>`: which run carries the key.

    `request` is the whole start request, so that whoever meets the claim of a start that died can
    finish it. `replaces`: the nonce of the tombstone that its `start` is to take the place of.
    """

    run: str
    request: Start
    nonce: str
    replaces: str = ""


class Starts(msgspec.Struct, omit_defaults=True):
    """`queues/<queue>/rate`: when the last runs were started, as many as count."""

    nonce: str
    times: list[float] = []


class Pauses(msgspec.Struct, omit_defaults=True):
    """`pauses`: queues and workflows of which no run is to be taken."""

    nonce: str
    queues: list[str] = []
    workflows: list[str] = []


class ScheduleRecord(msgspec.Struct, omit_defaults=True):
    """`schedules/<name>`: a schedule and how far it has come. See durable.protocol.ticks.

    Attributes:
        through: every tick up to here has been decided; a tick is decided once, by CAS.
        started: the ticks that the last decision started. Who finds one without a run starts it.
        queued: ticks that wait for the end of the run before (`overlap="queue"`).
        last: the last tick that was started; 0: none was.
        cancelling: a tick whose run is to be cancelled first (`overlap="cancel-old"`).
        fired, missed, skipped: how many ticks ran, were nobody's, overlapped.
    """

    name: str
    workflow: str
    input: msgspec.Raw
    schedule: Schedule
    nonce: str
    queue: str = "default"
    tags: dict[str, str] = {}
    by: Literal["code", "client"] = "code"
    created: float = 0.0
    through: float = 0.0
    paused: bool = False
    started: list[float] = []
    queued: list[float] = []
    last: float = 0.0
    cancelling: float = 0.0
    timeout: float | None = None  # of a run, in seconds from its start
    workflow_version: str = ""
    pinned: bool = False
    lock: LockRequest | None = None  # of each run
    limited: bool = False  # whether each needs a slot of its queue
    priority: int = 0
    fired: int = 0
    missed: int = 0
    skipped: int = 0


_encode = msgspec.json.Encoder().encode


_marker = msgspec.json.Decoder(Marker)


def is_marker(body: bytes) -> bool:
    """Whether this is the body of a marker, and not damaged or somebody else's object."""
    try:
        _marker.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def encode(record: msgspec.Struct) -> bytes:
    """A record as the JSON that its object's body holds."""
    return _encode(record)
