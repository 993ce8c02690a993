"""What is recorded of the attempts of a call that has no outcome yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from durable.protocol.records import Attempt, Beat, Begin


@dataclass
class Tried:
    """How far earlier owners came with one call.

    Attributes:
        failed: the last attempt that failed.
        begun: the number of the last body that was claimed before it began; at-most-once steps
            claim theirs. 0: none.
        details: what a body last gave to `heartbeat`.
    """

    failed: Attempt | None = None
    begun: int = 0
    details: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def unknown(self) -> bool:
        """Whether a body began of which nobody knows what became of it."""
        return self.begun > (self.failed.attempt if self.failed is not None else 0)


def by_path(
    attempts: Sequence[Attempt], begins: Iterable[Begin], beats: Iterable[Beat]
) -> dict[str, Tried]:
    """What these records say of each call."""
    found: dict[str, Tried] = {}
    for attempt in sorted(attempts, key=lambda a: a.attempt):
        found.setdefault(attempt.path, Tried()).failed = attempt
    for begin in begins:
        tried = found.setdefault(begin.path, Tried())
        tried.begun = max(tried.begun, begin.attempt)
    # A failed attempt is told after the last beat of its body, and by a younger owner's beats of
    # the next attempt it is overtaken.
    told: list[tuple[int, bool, int, Attempt | Beat]] = [
        *((a.attempt, True, a.epoch, a) for a in attempts),
        *((b.attempt, False, b.epoch, b) for b in beats),
    ]
    for *_, record in sorted(told, key=lambda t: t[:3]):
        if record.details is not msgspec.UNSET:
            found.setdefault(record.path, Tried()).details = record.details
    return found
