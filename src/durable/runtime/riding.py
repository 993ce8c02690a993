"""What is recorded with whatever is recorded next, because it has no object of its own.

That is each sleep that was handed over, with its place in the order, and what `patched` has said
yes to. They ride on every record of this owner until one of these is acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from durable.protocol.records import Slept, Step, Take


@dataclass
class Riders:
    """Those of one execution that no acknowledged record names."""

    _slept: list[Slept] = field(default_factory=list)
    _patches: list[str] = field(default_factory=list)

    def slept(self, n: int, path: str) -> None:
        """The sleep at `path` is handed over under this number."""
        self._slept.append(Slept(n, path))

    def patched(self, patch: str) -> None:
        """`patched` said yes."""
        self._patches.append(patch)

    @property
    def has_slept(self) -> bool:
        """Whether a sleep waits for a record that names it."""
        return bool(self._slept)

    def board(self, record: Step | Take) -> None:
        """This record is sent next."""
        record.slept = list(self._slept)
        record.patches = list(self._patches)

    def arrived(self, record: Step | Take) -> None:
        """This record is acknowledged."""
        if record.slept:
            self._slept = [sleep for sleep in self._slept if sleep not in record.slept]
        if record.patches:
            self._patches = [patch for patch in self._patches if patch not in record.patches]
