"""Singletons: of the runs that share a key, one at a time.

The lock `locks/<key>` names a run and its instance, never a process: it is held across crashes,
sleeps and takeovers, and it is free as soon as that instance is over, which is a fact of the
run's own folder. So nobody has to free it, and nothing can orphan it.

The run itself takes it, as the first thing it does under its marker. Who finds it held does what
`on_conflict` says. Waiters are objects beside the lock, named by time: the first is woken when
the lock becomes free, and who comes later lets it go first.
"""

from __future__ import annotations

from typing import Literal

from durable.protocol.records import LockRecord, LockRequest

OnConflict = Literal["skip", "raise", "join", "wait", "queue", "replace"]
ON_CONFLICT: tuple[OnConflict, ...] = ("skip", "raise", "join", "wait", "queue", "replace")
WAITING: frozenset[str] = frozenset({"wait", "queue", "replace"})  # who finds it held, waits

LOCK_PATH = "lock"  # of the wait; calls have an ordinal or a key in their path


def is_ours(lock: LockRecord | None, run: str, instance: str) -> bool:
    """Whether the lock names this instance, from before a crash or a takeover."""
    return lock is not None and (lock.run, lock.instance) == (run, instance)


def is_free(lock: LockRecord | None, now: float, *, over: bool) -> bool:
    """Whether anybody may take it.

    Args:
        over: whether the instance that it names is: it has a result, or `start` names another.
    """
    if lock is None or not lock.run or over:
        return True
    return now >= expires(lock)


def expires(lock: LockRecord) -> float:
    """When it is free although its holder goes on; infinity: never."""
    return float("inf") if lock.ttl is None else lock.since + lock.ttl


def taken(
    request: LockRequest, *, run: str, instance: str, workflow: str, nonce: str, now: float
) -> LockRecord:
    """The lock in the hands of this instance."""
    return LockRecord(
        key=request.key, run=run, instance=instance, workflow=workflow, since=now, nonce=nonce,
        ttl=request.ttl,
    )  # fmt: skip
