"""The rules of leases: how long a holder trusts itself, and when others may take over.

A lease is `ttl` long, guarded by `margin` on both sides. The holder trusts itself until `margin`
before the end, counted on its own clock from the moment it *sent* the renewal; others wait until
`margin` after the end, counted on the store's clock from the moment the renewal was *stored*,
which is later. So the two never overlap while clock rates differ by less than 1 % (promise P11);
no clock is compared with another machine's.

Others judge by the ttl and margin stored in the lease, never by their own configuration.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from durable.errors import UsageError
from durable.protocol.records import Lease

TTL_DEFAULT = 20.0  # seconds
MARGIN_MIN = 2.0  # seconds; what a slow answer and a coarse clock may take
MARGIN_SHARE = 0.1  # of the ttl
RATE_ERROR_MAX = 0.01  # by which a clock may run fast or slow

_ROUNDING = 1e-9

Verdict = Literal["takeable", "expired", "alive"]


def margin(ttl: float) -> float:
    """The guard on both sides of a lease of `ttl` seconds."""
    return max(MARGIN_MIN, MARGIN_SHARE * ttl)


class Terms(msgspec.Struct, frozen=True):
    """How long a lease is and how it is renewed, in seconds. Made by `of` or `tight`."""

    ttl: float
    margin: float

    @property
    def period(self) -> float:
        """From the sending of one renewal to the next."""
        return self.ttl / 3

    @property
    def timeout(self) -> float:
        """How long one try of a renewal may take."""
        return self.ttl / 6

    @classmethod
    def of(cls, ttl: float) -> Terms:
        """The terms of a lease of `ttl` seconds.

        Raises:
            UsageError: too short to survive one renewal that is not answered.
        """
        terms = cls(ttl, margin(ttl))
        _check(terms, smallest=6 * MARGIN_MIN)
        return terms

    @classmethod
    def tight(cls, ttl: float, margin: float) -> Terms:
        """Terms with a margin of the caller's choice: for tests, where ttl is under 12 s.

        Raises:
            UsageError: the ttl is too short for the margin, or the margin too small for P11.
        """
        if not margin >= RATE_ERROR_MAX * ttl:
            raise UsageError(
                f"a margin of {margin:g} s does not cover clocks that differ by 1 % during "
                f"a ttl of {ttl:g} s",
                hint=f"Choose a margin of at least {RATE_ERROR_MAX * ttl:g} s.",
            )
        terms = cls(ttl, margin)
        _check(terms, smallest=6 * margin)
        return terms


def _check(terms: Terms, *, smallest: float) -> None:
    # One renewal may go unanswered: the next, a period later, must still be in time.
    needed = terms.margin + 2 * terms.period + terms.timeout
    if math.isfinite(terms.ttl) and terms.ttl >= max(smallest, needed) - _ROUNDING:
        return
    raise UsageError(
        f"a ttl of {terms.ttl:g} s is too short: margin {terms.margin:g} s + two renewal periods "
        f"of {terms.period:g} s + a renewal timeout of {terms.timeout:g} s do not fit into it",
        hint=f"Choose a ttl of at least {smallest:g} s.",
    )


def trusted_until(sent: float, terms: Terms) -> float:
    """Until when a holder may act on a lease whose write it sent at `sent` (its own clock)."""
    return sent + terms.ttl - terms.margin


def expired(updated: float, now: float, lease: Lease) -> bool:
    """Whether a lease stored at `updated` is over at `now`, both by the store's clock."""
    return now > updated + lease.ttl + lease.margin


def verdict(lease: Lease | None, *, updated: float, now: float, boot: str = "") -> Verdict:
    """What others may do with the runs of a lease's holder.

    Args:
        lease: what stands in the store; None if nothing does.
        updated: when it was stored, by the store's clock.
        now: the store's present time.
        boot: the boot of the machine the store's time belongs to, empty if it outlives machines.
            A holder of an earlier boot of that machine is dead.

    Returns:
        takeable: there is no holder, its runs may be taken.
        expired: fence the holder first, by replacing its lease by a dead one.
        alive: leave them alone.
    """
    if lease is None or lease.state == "dead":  # state before age: a fence is for good
        return "takeable"
    if boot and lease.boot and lease.boot != boot:
        return "expired"
    return "expired" if expired(updated, now, lease) else "alive"


def held_by(owner: str, lease: Lease | None, token: str | None) -> bool:
    """Whether what stands in the store is still the lease of `owner`.

    `lease` is the record, None if there is none or it cannot be read, and `token` the owner
    token beside it. A fenced lease is nobody's, whatever token it carries.
    """
    return lease is not None and lease.state == "alive" and token == owner
