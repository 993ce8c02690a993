"""Where to look and who is at it: markers, timers, workers, attention, history."""

from __future__ import annotations

from typing import Literal

import msgspec

from durable.protocol.records.runs import Result, Start, Status


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


_marker = msgspec.json.Decoder(Marker)


def is_marker(body: bytes) -> bool:
    """Whether this is the body of a marker, and not damaged or somebody else's object."""
    try:
        _marker.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


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


WHY_MAX = 200  # characters; lists show less


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
        """The entry of a run that came to this result.

        Args:
            why: what there is to say of that; by default the error it ended with, cut short.
        """
        if not why and result.failure is not None:
            failure, cancelled = result.failure, result.status == "cancelled"
            kind = "" if cancelled else f"{failure.type.removeprefix('builtins.')}: "
            why = f"{kind}{failure.message}"[:WHY_MAX]
        return cls(
            run=run, instance=start.instance, workflow=start.workflow, status=result.status,
            started=start.created, ended=result.time, nonce=nonce, tags=start.tags, why=why,
        )  # fmt: skip
