"""Singletons: of the runs that share a key, one at a time.

The lock `locks/<key>` names a run and its instance, never a process: it is held across crashes,
sleeps and takeovers, and it is free as soon as that instance is over, which is a fact of the
run's own folder. So nobody has to free it, and nothing can orphan it.

The run itself takes it, as the first thing it does under its marker. Who finds it held does what
`on_conflict` says. Waiters are objects beside the lock, named by time: the first is woken when
the lock becomes free, and who comes later lets it go first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from durable.errors import InvalidDefinition, UsageError
from durable.protocol import durations, moments
from durable.protocol.names import check_id
from durable.protocol.records import LockRecord, LockRequest, Result

OnConflict = Literal["skip", "raise", "join", "wait", "queue", "replace"]
Key = str | Callable[..., str]
Seconds = durations.Duration | None

ATTEMPT_EVERY = "10s"
LOCK_PATH = "lock"  # of the wait; calls have an ordinal or a key in their path


class Singleton(msgspec.Struct, frozen=True):
    """That runs of a workflow share a lock. Made by `singleton`, which checks it.

    Attributes:
        key: of the lock, or a function of the workflow's arguments that gives it.
        max_wait: seconds; None: for ever.
        ttl: seconds; None: for as long as the run goes on.
        attempts: how often a run asks for the lock; None: only when it is woken.
        pause: seconds between two of them.
    """

    key: Key
    on_conflict: OnConflict
    max_wait: float | None = None
    ttl: float | None = None
    attempts: int | None = None
    pause: float = 0.0

    def request(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> LockRequest:
        """What a run with these arguments asks for.

        Raises:
            UsageError: the function raised, or gave no text.
            InvalidId: the key cannot be part of an object's name.
        """
        key = self.key if isinstance(self.key, str) else _given(self.key, args, kwargs)
        check_id(key, what="key of a singleton")
        return LockRequest(
            key, self.on_conflict, self.max_wait, self.ttl, self.attempts, self.pause
        )


def _given(
    function: Callable[..., str], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> str:
    """The key for these arguments."""
    try:
        key: object = function(*args, **kwargs)  # it may not be type-checked
    except Exception as e:
        raise UsageError(
            f"the singleton's function raised {type(e).__name__} for the key of the lock: {e}",
            hint="it gets the workflow's arguments, and gives a key for all that can be",
        ) from e
    if isinstance(key, str):
        return key
    raise UsageError(
        f"the singleton's function gave {type(key).__name__} for the key of the lock",
        hint="return text, such as an id among the arguments",
    )


def singleton(
    key: Key | None,
    *,
    on_conflict: OnConflict,
    max_wait: Seconds,
    ttl: Seconds,
    max_attempts: int | None = None,
    attempt_every: Seconds = None,
) -> Singleton | None:
    """The options of `@workflow`, checked; None: it is no singleton.

    Raises:
        InvalidDefinition: they do not fit together.
    """
    given: Any = on_conflict
    if given not in get_args(OnConflict):
        raise InvalidDefinition(
            f"on_conflict={on_conflict!r}: {', '.join(map(repr, get_args(OnConflict)))}"
        )
    if key is None:
        bounds = (max_wait, ttl, max_attempts, attempt_every)
        if on_conflict != "raise" or any(bound is not None for bound in bounds):
            raise InvalidDefinition(
                "on_conflict, max_wait, max_attempts, attempt_every and lock_ttl are options of a "
                "singleton: give its key"
            )
        return None
    if not (isinstance(key, str) or callable(key)):
        raise InvalidDefinition(
            f"singleton={key!r} is no key",
            hint="give text, or a function of the workflow's arguments that gives text",
        )
    for name, bound in {"max_wait": max_wait, "max_attempts": max_attempts}.items():
        if bound is not None and on_conflict not in {"wait", "queue", "replace"}:
            raise InvalidDefinition(
                f"on_conflict={on_conflict!r} does not wait, so {name}= is no use"
            )
    if attempt_every is not None and max_attempts is None:
        raise InvalidDefinition(
            f"attempt_every={attempt_every!r} without max_attempts= is no use: a run that waits is "
            "woken when the lock is free",
            hint="give max_attempts=, or leave attempt_every= out",
        )
    pause = durations.seconds(ATTEMPT_EVERY if attempt_every is None else attempt_every)
    if max_attempts is not None and (max_attempts < 1 or pause <= 0):
        raise InvalidDefinition(
            f"max_attempts={max_attempts!r}, attempt_every={attempt_every!r}: at least one "
            "attempt, and some time between two"
        )
    if ttl is not None and durations.seconds(ttl) <= 0:
        raise InvalidDefinition(
            f"lock_ttl={ttl!r}: a lock that blocks nobody",
            hint="leave it out for a lock that is held as long as the run goes on",
        )
    if isinstance(key, str):
        check_id(key, what="key of a singleton")
    return Singleton(
        key, on_conflict,
        None if max_wait is None else durations.seconds(max_wait),
        None if ttl is None else durations.seconds(ttl),
        max_attempts, 0.0 if max_attempts is None else pause,
    )  # fmt: skip


def gives_up(request: LockRequest, began: float) -> float | None:
    """When a run that began to wait then waits no more; None: never.

    The last attempt is made at that moment, the first when the wait began.
    """
    bounds = [] if request.max_wait is None else [began + request.max_wait]
    if request.attempts is not None:
        bounds.append(began + (request.attempts - 1) * request.pause)
    return min(bounds, default=None)


def next_attempt(request: LockRequest, began: float, now: float) -> float:
    """When a run that waits asks again although nobody has woken it; infinity: never."""
    if request.attempts is None:
        return math.inf
    made = math.floor((now - began) / request.pause)
    return next(at for k in (1, 2) if (at := began + (made + k) * request.pause) > now)


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


def ending(result: Result) -> str:
    """What there is to say of how a run ended; empty for most."""
    for word, holder in (("skipped", result.skipped), ("joined", result.joined)):
        if holder is not None:
            since = moments.second(round(holder.since))
            return f"{word}: run {holder.run!r} has the lock since {since}"
    return ""
