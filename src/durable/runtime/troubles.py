"""What the store would not do for a worker, told once.

A store that is away, or that refuses an account, does so to every run and every loop of a worker.
Each of them comes here with it; what is said is the first, with what to do about it.
"""

from __future__ import annotations

import logging
import math

from durable.errors import StoreError, StoreUnavailable
from durable.system import System

log = logging.getLogger("durable")

AGAIN = 600.0  # seconds after which the same advice is given again


class Troubles:
    """The troubles of one worker."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._silent: dict[tuple[type[StoreError], str], float] = {}

    def tell(self, what: str, error: StoreError) -> None:
        """Say what did not go on, why, and what to do, unless the same advice was just given."""
        key, now = (type(error), error.hint or error.message), self._system.boot()
        if now >= self._silent.get(key, -math.inf):
            self._silent[key] = now + AGAIN
            advice = f"; hint: {error.hint}" if error.hint else ""
            log.warning("%s: %s%s", what, error.message, advice)

    def over(self) -> None:
        """The store answers again: the next time that it does not is another."""
        for key in [key for key in self._silent if issubclass(key[0], StoreUnavailable)]:
            del self._silent[key]
