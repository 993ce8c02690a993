"""The rules of leases, with times as arguments."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.errors import UsageError
from durable.protocol import leases
from durable.protocol.leases import Terms
from durable.protocol.records import Lease

ALIVE = Lease(worker="w", ttl=20.0, margin=2.0, nonce="n", boot="boot-a")
DEAD = msgspec.structs.replace(ALIVE, state="dead")

HOURS_48 = 48 * 3600.0
rates = st.floats(1 - leases.RATE_ERROR_MAX, 1 + leases.RATE_ERROR_MAX)
offsets = st.floats(-HOURS_48, HOURS_48)
terms = st.one_of(
    st.floats(12.0, 86_400.0).map(Terms.of),
    st.floats(0.1, 12.0).flatmap(
        lambda ttl: st.floats(0.01 * ttl, ttl / 6).map(lambda margin: Terms.tight(ttl, margin))
    ),
)


@pytest.mark.parametrize(("ttl", "expected"), [(12, 2.0), (20, 2.0), (30, 3.0), (600, 60.0)])
def test_margin(ttl: float, expected: float) -> None:
    """The guard is two seconds, or a tenth of a long ttl."""
    assert leases.margin(ttl) == pytest.approx(expected)


def test_default_terms() -> None:
    """At 20 s a renewal is sent every 6.7 s and may take 3.3 s."""
    found = Terms.of(leases.TTL_DEFAULT)

    assert (found.ttl, found.margin) == (20.0, 2.0)
    assert found.period == pytest.approx(6.667, abs=1e-3)
    assert found.timeout == pytest.approx(3.333, abs=1e-3)


def test_smallest_ttl() -> None:
    """12 s is the smallest ttl."""
    assert Terms.of(12.0).margin == 2.0


@pytest.mark.parametrize("ttl", [11.99, 1, 0, -20, math.nan, math.inf, -math.inf])
def test_refused_ttl(ttl: float) -> None:
    """A ttl that cannot survive one unanswered renewal is refused, and the message helps."""
    with pytest.raises(UsageError) as caught:
        Terms.of(ttl)

    assert f"a ttl of {ttl:g} s" in caught.value.message
    assert caught.value.hint == "Choose a ttl of at least 12 s."


def test_refused_ttl_shows_the_numbers() -> None:
    """The message names the margin, the periods and the timeout that do not fit."""
    with pytest.raises(UsageError, match=r"margin 2 s \+ two renewal periods of 2 s \+ .* 1 s"):
        Terms.of(6.0)


def test_tight_terms() -> None:
    """Tests choose the margin, so their ttl may be small."""
    assert Terms.tight(0.6, 0.1).ttl == 0.6


@pytest.mark.parametrize(("ttl", "margin"), [(0.6, 0.11), (0.6, 0.005), (0.6, math.nan), (-1, 0)])
def test_tight_terms_keep_the_rules(ttl: float, margin: float) -> None:
    """A chosen margin neither swallows the renewals nor is smaller than what clocks differ by."""
    with pytest.raises(UsageError):
        Terms.tight(ttl, margin)


@given(terms)
def test_one_unanswered_renewal_is_survived(found: Terms) -> None:
    """The renewal after an unanswered one ends before the holder stops trusting itself."""
    second_answer = 2 * found.period + found.timeout

    assert second_answer <= leases.trusted_until(0.0, found) + 1e-9


@pytest.mark.parametrize(("age", "over"), [(0, False), (22, False), (22.001, True), (-5, False)])
def test_expired(age: float, over: bool) -> None:
    """A lease is over when it is older than its ttl and margin."""
    assert leases.expired(1000.0, 1000.0 + age, ALIVE) is over


def test_expired_by_what_is_stored() -> None:
    """The ttl and margin that count are those of the lease, whatever the judge would use."""
    long = msgspec.structs.replace(ALIVE, ttl=120.0, margin=12.0)

    assert leases.expired(0.0, 131.0, long) is False
    assert leases.expired(0.0, 133.0, long) is True


@pytest.mark.parametrize(
    ("lease", "now", "boot", "expected"),
    [
        (None, 0.0, "", "takeable"),
        (DEAD, 0.0, "", "takeable"),
        (DEAD, 0.0, "boot-b", "takeable"),
        (ALIVE, 10.0, "", "alive"),
        (ALIVE, 23.0, "", "expired"),
        (ALIVE, 10.0, "boot-a", "alive"),
        (ALIVE, 10.0, "boot-b", "expired"),
        (msgspec.structs.replace(ALIVE, boot=""), 10.0, "boot-b", "alive"),
    ],
)
def test_verdict(lease: Lease | None, now: float, boot: str, expected: str) -> None:
    """State is judged before age; a holder of an earlier boot of the store's machine is dead."""
    assert leases.verdict(lease, updated=0.0, now=now, boot=boot) == expected


@pytest.mark.parametrize(
    ("lease", "token", "expected"),
    [
        (ALIVE, "me", True),
        (ALIVE, "other", False),
        (ALIVE, None, False),
        (DEAD, "me", False),
        (None, "me", False),
    ],
)
def test_held_by(lease: Lease | None, token: str | None, expected: bool) -> None:
    """A lease is its owner's while it is alive and carries the owner's token."""
    assert leases.held_by("me", lease, token) is expected


@given(
    found=terms,
    sent=st.floats(0, 1e6),
    transit=st.floats(0, 1e4),
    holder=st.tuples(rates, offsets),
    store=st.tuples(rates, offsets),
    lag=st.floats(0, 1e3),
)
def test_holder_and_thief_never_overlap(
    found: Terms,
    sent: float,
    transit: float,
    holder: tuple[float, float],
    store: tuple[float, float],
    lag: float,
) -> None:
    """Promise P11: when the lease may first be taken, its holder no longer trusts it."""

    def clock(real: float, of: tuple[float, float]) -> float:
        return of[0] * real + of[1]

    lease = Lease(worker="w", ttl=found.ttl, margin=found.margin, nonce="n")
    updated = clock(sent + transit, store)
    deadline = leases.trusted_until(clock(sent, holder), found)
    trusted_last = (deadline - holder[1]) / holder[0]  # in real time

    # A judge who sees the store's time `lag` late, at the last moment of the holder's trust.
    now = clock(trusted_last - lag, store)

    assert leases.expired(updated, now - 1e-6, lease) is False
