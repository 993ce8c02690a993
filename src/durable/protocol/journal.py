"""The order in which a run's recorded outcomes are handed over again.

Each record carries (epoch, n): n counts the records its owner issued, fixed when the body had
ended and before the create was sent. While an owner lives it hands outcomes over in the order
of n, and only once every lower number of its own is known. So replaying the records of one
epoch by n repeats the order that its owner saw, however far that owner came.

A record of a dead owner may land after its successor's list ("late"). No owner alive then saw
it, so it takes its place behind everything that those owners recorded themselves: records sort
by (the first epoch whose list contained them, youngest owner first, n). What each list
contained is in the epoch claims (`Epoch.seen`).

Besides the outcomes of calls (`steps/`, and several together in `groups/`) the order holds the
decisions of the inbox (`takes/`) and the sleeps that were handed over. A sleep has no object of
its own: every record that its owner issued after it names it (`slept`), until one of these was
acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from durable.protocol.attempts import Tried
from durable.protocol.records import Attempt, Epoch, Seen, Slept, Step, Take, Wait


@dataclass
class Journal:
    """The recorded past of one instance.

    Attributes:
        order: recorded outcomes in the order of handing over.
        attempts: the last failed attempt of each call, by path.
        tried: how far the attempts of each call came, by path.
        epochs: epoch claims by number.
        patches: what `patched` has said yes to.
        waits: claims of waits that have begun, by path.
        groups: how many groups of outcomes were recorded.
        closed: paths of calls that a decision closed, so that they have no outcome.
    """

    order: list[Step] = field(default_factory=list)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    epochs: dict[int, Epoch] = field(default_factory=dict)
    tried: dict[str, Tried] = field(default_factory=dict)
    patches: set[str] = field(default_factory=set)
    waits: dict[str, Wait] = field(default_factory=dict)
    groups: int = 0
    closed: set[str] = field(default_factory=set)

    def recorded_up_to(self, epoch: int) -> int:
        """How many outcomes these owners recorded; copied to another instance, they stand first."""
        return sum(step.epoch <= epoch for step in self.order)

    def open_calls(self) -> set[str]:
        """Paths of the calls that have begun to wait, and of which no record tells the end."""
        over = self.closed | {step.path for step in self.order}
        return {*self.waits, *self.attempts} - over

    @property
    def cleaning_since(self) -> float | None:
        """When the first call was cancelled with the run, in store time."""
        times = [step.time for step in self.order if step.outcome == "cancelled"]
        return min(times, default=None)


def outcomes(steps: Iterable[Step], takes: Iterable[Take], waits: Iterable[Wait]) -> list[Step]:
    """Everything that has an order number; a sleep once for each owner that handed it over."""
    recorded = [*steps, *(take.as_step() for take in takes)]
    dues = {wait.path: wait.due for wait in waits}
    slept = [
        _slept(record, sleep, dues.get(sleep.path)) for record in recorded for sleep in record.slept
    ]
    return recorded + slept


def _slept(carrier: Step, sleep: Slept, due: float | None) -> Step:
    return Step(
        path=sleep.path, name="sleep", kind="sleep", outcome="value", epoch=carrier.epoch,
        n=sleep.n, nonce="", time=carrier.time if due is None else due,
    )  # fmt: skip


def build(
    steps: Iterable[Step],
    attempts: Iterable[Attempt],
    epochs: Iterable[Epoch],
    waits: Iterable[Wait] = (),
) -> Journal:
    """The journal that these records make.

    Args:
        steps: as `outcomes` gives them. A record of a path goes before a mere mention of it,
            and the earliest mention before the others.
        attempts: that failed.
        epochs: claimed so far.
        waits: that have begun.
    """
    claims = {e.epoch: e for e in epochs}
    numbers = sorted(claims)

    def key(record: Step) -> tuple[int, int, int, str]:
        return (_first_seen(record, numbers, claims), -record.epoch, record.n, record.path)

    failed: dict[str, Attempt] = {}
    for attempt in sorted(attempts, key=lambda a: a.attempt):
        failed[attempt.path] = attempt
    order: dict[str, Step] = {}
    in_order = sorted(steps, key=key)
    recorded = {step.path for step in in_order if step.nonce}
    for step in in_order:
        if step.nonce or step.path not in recorded:
            order.setdefault(step.path, step)
    return Journal(
        list(order.values()), failed, claims,
        patches=patches(in_order, claims.values()), waits={wait.path: wait for wait in waits},
    )  # fmt: skip


def patches(steps: Iterable[Step], epochs: Iterable[Epoch]) -> set[str]:
    """What `patched` has said yes to, by these records."""
    told = [step.patches for step in steps] + [epoch.patches for epoch in epochs]
    return {patch for patches in told for patch in patches}


def closed(records: Iterable[Step | Wait], *, after: int) -> set[str]:
    """Paths of the calls that these records tell to be closed.

    Args:
        records: of all that is recorded.
        after: the highest epoch whose records are copies: what its decisions closed may be open
            in the instance that they were copied to.
    """
    return {path for record in records if record.epoch > after for path in record.closed}


def _first_seen(record: Step, numbers: list[int], claims: Mapping[int, Epoch]) -> int:
    for number in numbers:
        if number > record.epoch:
            seen = claims[number].seen.get(str(record.epoch))
            if seen is not None and record.n <= seen.highest and record.n not in seen.holes:
                return number
    return (numbers[-1] if numbers else 1) + 1


def seen(steps: Iterable[Step]) -> dict[str, Seen]:
    """What a list contained of each earlier epoch: highest order number, and the holes below."""
    numbers: dict[int, set[int]] = {}
    for record in steps:
        numbers.setdefault(record.epoch, set()).add(record.n)
    return {
        str(epoch): Seen(max(found), sorted(set(range(1, max(found))) - found))
        for epoch, found in numbers.items()
    }


class Suspicion(msgspec.Struct, frozen=True):
    """How likely it is that resuming this run kills the process that does.

    Attributes:
        alone: the next epoch is resumed with no other run in its process.
        solitary_deaths: deaths of such epochs since the last new record.
    """

    alone: bool
    solitary_deaths: int


def suspicion(epochs: Mapping[int, Epoch], recorded_epochs: Iterable[int]) -> Suspicion:
    """The crash-loop rule: only takeovers without a new record count.

    Args:
        epochs: claims so far, not yet counting the one about to be made.
        recorded_epochs: the epochs that recorded anything, attempts included.
    """
    last_fruitful = max(recorded_epochs, default=0)
    deaths = 0
    solitary = 0
    for number in sorted(epochs, reverse=True):
        claim = epochs[number]
        if claim.why != "takeover" or number <= last_fruitful:
            break
        deaths += 1
        solitary += claim.alone
    return Suspicion(alone=deaths >= 1, solitary_deaths=solitary)
