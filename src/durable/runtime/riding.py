"""What is recorded with whatever is recorded next, because it has no object of its own.

That is each sleep that was handed over, with its place in the order, what `patched` has said yes
to, and calls that a decision has closed while they waited. They ride on every record of this
owner until one of these is acknowledged. What no record ever carried nobody has seen, and the
next owner decides it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from durable.protocol.records import Slept, Step, Take, Wait

CLOSED_AT_ONCE = 40  # paths on one record, which should stay small enough for a list


@dataclass
class Riders:
    """Those of one execution that no acknowledged record names.

    Attributes:
        open: paths of which a claim or a failed attempt is recorded, and no end.
    """

    open: set[str] = field(default_factory=set)
    _slept: list[Slept] = field(default_factory=list)
    _patches: list[str] = field(default_factory=list)
    _closed: list[str] = field(default_factory=list)

    def slept(self, n: int, path: str) -> None:
        """The sleep at `path` is handed over under this number."""
        self._slept.append(Slept(n, path))

    def patched(self, patch: str) -> None:
        """`patched` said yes."""
        self._patches.append(patch)

    def closed(self, path: str) -> None:
        """A decision closed the call at `path`: that is told to those who look at the run."""
        if path in self.open:
            self.open.remove(path)
            self._closed.append(path)

    @property
    def has_slept(self) -> bool:
        """Whether a sleep waits for a record that names it."""
        return bool(self._slept)

    def board(self, record: Step | Take) -> None:
        """This record is sent next."""
        record.slept = list(self._slept)
        record.patches = list(self._patches)
        record.closed = self._closed[:CLOSED_AT_ONCE]

    def arrived(self, record: Step | Take) -> None:
        """This record is acknowledged."""
        if record.slept:
            self._slept = [sleep for sleep in self._slept if sleep not in record.slept]
        if record.patches:
            self._patches = [patch for patch in self._patches if patch not in record.patches]
        if record.closed:
            self._told(record.closed)

    def board_claim(self, wait: Wait) -> None:
        """This claim is sent next. It has no place in the order, and so can give none."""
        over = [sleep.path for sleep in self._slept]
        wait.closed = self._closed[:CLOSED_AT_ONCE] + over[:CLOSED_AT_ONCE]

    def claim_arrived(self, wait: Wait) -> None:
        """This claim is acknowledged."""
        self._told(wait.closed)

    def _told(self, closed: list[str]) -> None:
        self._closed = [path for path in self._closed if path not in closed]
