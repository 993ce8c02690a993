"""Limited queues: at most N of their runs go on at once, and which of those that wait goes next.

A run of a limited queue goes on only while one of the N objects `queues/<queue>/slots/<i>` names
its instance. Slots are created, so there are never more than N, and a slot belongs to a run, not
to a process: it stays across crashes and takeovers, until the run ends or parks.

Who waits is `queues/<queue>/pending/<priority>-<time>-<run>`; byte order is the order of turns.
The rules that keep a slot from being lost or held twice:

- a slot of a run that is not over is given up by the run's holder alone. Whoever doubts that a
  run still needs its slot wakes the run, and its holder finds out;
- who has made a slot looks at all of them again: if the run holds a lower one, it deletes its own;
- a run that holds several relies on the lowest;
- `pending` goes only after the run has a slot and was woken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from durable.errors import UsageError
from durable.protocol import durations
from durable.protocol.names import check_id
from durable.protocol.records import Debounce, QueueRecord, Slot

SLOTS_MAX = 1000  # of a queue that has a rate and no concurrency; one list shows them all
RATE_MAX = 1000  # starts in one period; each is remembered
PRIORITY_MAX = 999
SLOT_PATH = "slot"  # of the wait; calls have an ordinal or a key in their path
DEBOUNCE_PATH = "debounce"  # of the wait for the end of a quiet time
DEBOUNCE_TIMES = 10  # a busy key's run begins after so many quiet times


class Rate(NamedTuple):
    """At most `starts` in any `per` seconds."""

    starts: int
    per: float


def _is_count(given: object, most: int) -> bool:
    return type(given) is int and 1 <= given <= most


def _is_rate(given: Any) -> bool:  # the code that says it may not be type-checked
    match given:
        case (starts, per):
            return _is_count(starts, RATE_MAX) and durations.seconds(per) > 0
    return False


class Queue(msgspec.Struct, frozen=True):
    """A queue and its limits: `@workflow(queue=Queue("emails", concurrency=3))`.

    Args:
        name: where workers look for its runs.
        concurrency: how many of its runs go on at once, over all workers; None: no limit.
        rate: `(n, per)`: at most n runs start in any period of that length, such as
            `(100, "1m")`, as exactly as the workers' ideas of the store's time agree.
        keep_slot: a run keeps its place while it is parked (sleeps, waits); by default others go
            on meanwhile, and it waits for a place again.
        debounce: a run that is started with a `debounce_key` begins once no further start with
            that key has come for so long, and does what the last of them asked for.
        debounce_max: however many come, it begins so long after the first; default: ten times
            `debounce`.

    Raises:
        UsageError: a limit that cannot be.
        InvalidId: the name cannot be part of an object's name.
    """

    name: str
    concurrency: int | None = None
    rate: tuple[int, durations.Duration] | None = None
    keep_slot: bool = False
    debounce: durations.Duration | None = None
    debounce_max: durations.Duration | None = None

    def __post_init__(self) -> None:
        check_id(self.name, what="queue")
        if self.concurrency is not None and not _is_count(self.concurrency, SLOTS_MAX):
            raise UsageError(
                f"concurrency={self.concurrency!r} of queue {self.name!r}: from 1 to {SLOTS_MAX}"
            )
        if self.rate is not None and not _is_rate(self.rate):
            raise UsageError(
                f"rate={self.rate!r} of queue {self.name!r}: from 1 to {RATE_MAX} runs in a time",
                hint='write rate=(100, "1m")',
            )
        self._check_debounce()

    def _check_debounce(self) -> None:
        if self.debounce is None:
            if self.debounce_max is not None:
                raise UsageError(f"debounce_max= of queue {self.name!r} bounds no debounce=")
            return
        if not 0 < self._quiet <= self._longest:
            raise UsageError(
                f"debounce={self.debounce!r} of queue {self.name!r}: more than no time, and "
                "at most debounce_max"
            )

    @property
    def _quiet(self) -> float:
        return 0.0 if self.debounce is None else durations.seconds(self.debounce)

    @property
    def _longest(self) -> float:
        given = self.debounce_max
        if given is not None:
            return durations.seconds(given)
        return min(DEBOUNCE_TIMES * self._quiet, durations.LONGEST)

    def debounced(self, key: str, now: float) -> Debounce:
        """What holds back a run that is the first to be started with this key, at that time.

        Raises:
            UsageError: the queue has no quiet time.
        """
        if self.debounce is None:
            raise UsageError(
                f"debounce_key={key!r}: queue {self.name!r} does not say how long to wait",
                hint=f'write Queue({self.name!r}, debounce="5s")',
            )
        return Debounce(key, now + self._quiet, now + self._longest)

    @property
    def is_limited(self) -> bool:
        """Whether its runs need a slot."""
        return self.concurrency is not None or self.rate is not None

    def record(self) -> QueueRecord:
        """As it stands in the store."""
        rate = None if self.rate is None else Rate(self.rate[0], durations.seconds(self.rate[1]))
        return QueueRecord(
            name=self.name, concurrency=self.concurrency, nonce="",
            rate=None if rate is None else list(rate), keep_slot=self.keep_slot,
        )  # fmt: skip


def check_priority(priority: int) -> int:
    """A priority that names can hold.

    Raises:
        UsageError: it is out of range, or no whole number.
    """
    given: object = priority  # callers may not be type-checked
    if not isinstance(given, int) or isinstance(given, bool):
        raise UsageError(f"priority={given!r}: write a whole number")
    if not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
        raise UsageError(
            f"priority={priority!r}: from -{PRIORITY_MAX} (first) to {PRIORITY_MAX} (last)"
        )
    return priority


# -- slots ----------------------------------------------------------------------------------------


def count(settings: QueueRecord) -> int:
    """How many slots the queue has."""
    return SLOTS_MAX if settings.concurrency is None else settings.concurrency


def own(slots: Mapping[int, Slot], run: str, instance: str) -> int | None:
    """The slot that this instance relies on: the lowest that names it."""
    mine = (i for i, slot in slots.items() if (slot.run, slot.instance) == (run, instance))
    return min(mine, default=None)


def free(slots: Iterable[int], settings: QueueRecord) -> list[int]:
    """The slots that nobody holds, lowest first."""
    return sorted(set(range(count(settings))) - set(slots))


# -- rate -----------------------------------------------------------------------------------------


def may_start(starts: list[float], rate: Rate, now: float) -> int:
    """How many more runs may start now, given the moments of the last starts."""
    return max(0, rate.starts - sum(now - moment < rate.per for moment in starts))


def started(starts: list[float], rate: Rate, now: float, more: int) -> list[float]:
    """The last starts, `more` at `now` included; only those that count are kept."""
    return [*starts, *[now] * more][-rate.starts :]


# -- debounce -------------------------------------------------------------------------------------


def moved(there: Debounce, asked: Debounce) -> Debounce:
    """What holds a run back after a further start that would be held back so by itself."""
    # Never to an earlier time: the hint that wakes the run may be of the later one.
    due = max(there.due, min(asked.due, there.latest))
    return msgspec.structs.replace(there, due=due)
