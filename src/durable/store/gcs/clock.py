"""The store's present time, from what its answers say.

An answer that says "it is T", or "this was written at T", proves when it is received that the
store's time is at least T. The latest such proof, carried on by the boot clock, is our idea of
the store's time: it can only be late, by the time an answer takes and, where only `Date` headers
were seen, by up to a second.

Proofs are forgotten after two windows, because the boot clock and the store's need not run at
the same rate, and because one front end whose clock is ahead must not count for ever.
"""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from durable.system import System

WINDOW = 60.0  # seconds; clocks that differ by 100 parts in a million part by 12 ms in two of them

_MS = 1000.0
_ROUNDING = 1e-3  # ms; a product of floats may fall this short of a whole number


class _Proofs(NamedTuple):
    """The best of this window and of the one before: store time minus boot clock, in ms."""

    began: float
    current: float
    before: float


class StoreClock:
    """Any thread may use it; of two that learn something at once, one may go unheard."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._proofs: _Proofs | None = None
        self._last_date: str | None = None

    def now(self) -> float:
        """Seconds since the epoch, in whole milliseconds as GCS writes its times.

        Before the first answer nothing can have been read that it would be compared with; until
        then it is this machine's wall clock.
        """
        proofs = self._proofs
        if proofs is None:
            return self._system.wall()
        ms = self._system.boot() * _MS + max(proofs.current, proofs.before)
        return math.floor(ms + _ROUNDING) / _MS

    def saw_date(self, date: str | None, received: float) -> None:
        """A `Date` header came at `received` on the boot clock."""
        if date is None or date == self._last_date:
            return  # a later answer of the same second proves less
        self._last_date = date
        try:
            self.saw(parsedate_to_datetime(date).timestamp(), received)
        except (ValueError, OverflowError):
            return  # some proxy's own idea of a date

    def saw(self, time: float, received: float) -> None:
        """The store had reached `time` when its answer came at `received` on the boot clock."""
        proof = math.floor(time * _MS + _ROUNDING) - received * _MS
        proofs = self._proofs
        if proofs is None or received - proofs.began >= 2 * WINDOW:
            self._proofs = _Proofs(received, proof, -math.inf)
        elif received - proofs.began >= WINDOW:
            self._proofs = _Proofs(received, proof, proofs.current)
        elif proof > proofs.current:
            self._proofs = proofs._replace(current=proof)
