"""Being alone: how a run that may kill whatever resumes it is kept from the others.

A run whose last owners died without recording anything is suspicious (see
`durable.protocol.journal.suspicion`). It is resumed with no other run in its process, so that
further deaths are its own; once it records something the suspicion is over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio


@dataclass
class Solitude:
    """Who is carried in this process, and who is alone there.

    Attributes:
        runs: what is carried here, but for those that wait to be alone.
        alone: the run that is, until it records something: after that it is not suspicious.
    """

    runs: set[str] = field(default_factory=set)
    alone: str | None = None
    _waiting: set[str] = field(default_factory=set)
    _changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def closed(self) -> bool:
        """Whether nothing may be taken, because a run is alone or waits for it."""
        return self.alone is not None or bool(self._waiting)

    def changed(self) -> None:
        if self._waiting:
            self._changed.set()
            self._changed = anyio.Event()

    async def wait_alone(self, run: str, unless: Callable[[], bool]) -> bool:
        """Returns when no other run goes on in this process.

        False: `unless` became true, or another run is alone here, for who knows how long; this
        one is better off elsewhere.
        """
        self.runs.discard(run)  # else two that wait would wait for each other
        self._waiting.add(run)
        self.changed()
        try:
            while self.alone is not None or self.runs:
                if self.alone is not None or unless():
                    return False
                await self._changed.wait()
            self.alone = run
            return True
        finally:
            self._waiting.discard(run)
            self.runs.add(run)

    def end(self, run: str) -> None:
        """The run has recorded something: others may join it."""
        if self.alone == run:
            self.alone = None
            self.changed()

    def leave(self, run: str) -> None:
        """The run is not carried here any more."""
        self.runs.discard(run)
        if self.alone == run:
            self.alone = None
        self.changed()
