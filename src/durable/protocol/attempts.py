"""What is recorded of the attempts of a call that has no outcome yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from durable.protocol.records import Attempt, Begin


@dataclass
class Tried:
    """How far earlier owners came with one call.

    Attributes:
        failed: the last attempt that failed.
        begun: the number of the last body that was claimed before it began; at-most-once steps
            claim theirs. 0: none.
    """

    failed: Attempt | None = None
    begun: int = 0

    @property
    def unknown(self) -> bool:
        """Whether a body began of which nobody knows what became of it."""
        return self.begun > (self.failed.attempt if self.failed is not None else 0)


def by_path(attempts: Iterable[Attempt], begins: Iterable[Begin]) -> dict[str, Tried]:
    """What these records say of each call."""
    found: dict[str, Tried] = {}
    for attempt in sorted(attempts, key=lambda a: a.attempt):
        found.setdefault(attempt.path, Tried()).failed = attempt
    for begin in begins:
        tried = found.setdefault(begin.path, Tried())
        tried.begun = max(tried.begun, begin.attempt)
    return found
