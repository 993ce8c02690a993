"""Which instance's chance `random` and `uuid` draw from, in a run that shares another's past.

A fork has the numbers of its origin as long as outcomes of the shared past are handed over:
they are in the arguments of recorded calls, which must fit. From there on it has its own, so that
what it newly does cannot be taken for what the origin did. That place is the same on each
replay, as is the order of outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec


class Share(NamedTuple):
    """One past that was shared.

    Attributes:
        length: how many outcomes it has; they stand first in the order.
        heir: the instance whose own record begins after it.
    """

    length: int
    heir: str


class Chance(msgspec.Struct, frozen=True):
    """The chance of one execution.

    Attributes:
        origin: the instance in which the record began.
        shares: the forks since, the earliest first.
        passed: whether so many recorded outcomes have been handed over.
    """

    origin: str
    shares: Sequence[Share]
    passed: Callable[[int], bool]

    @property
    def instance(self) -> str:
        """Whose chance a call that is made now draws from."""
        for share in reversed(self.shares):
            if self.passed(share.length):
                return share.heir
        return self.origin
