"""What runs share: locks, queues, schedules."""

from __future__ import annotations

from typing import Literal

import msgspec

from durable.protocol.records.runs import LockRequest, Start
from durable.protocol.schedules import Schedule


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
    """`locks/<key>/wait/<time>-<run>`: a run that waits for the lock, parked.

    `due`: when it looks by itself; the name of its timer hint has it.
    """

    key: str
    run: str
    instance: str
    since: float
    nonce: str
    due: float | None = None


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


class KeyClaim(msgspec.Struct, omit_defaults=True):
    """Which run carries a key: `queues/<queue>/keys/<key>`, one for starts that are the same;
    `queues/<queue>/debounce/<workflow>/<key>`, one by which starts are held back.

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
    label: str = ""  # that a worker must have to run it
    fired: int = 0
    missed: int = 0
    skipped: int = 0
