"""The pure rules: merging states, judging leases, what a release leaves behind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from durable.errors import UsageError
from durable.protocol import primitives, values
from durable.protocol.leases import Terms
from durable.protocol.primitives import KEEP, NOTHING, LeaseRecord


def merged(own: Any, current: Any, asked: Any) -> Any:
    states = (values.encode(state) for state in (own, current, asked))
    return values.decode(primitives.merge_states(*states))


@pytest.mark.parametrize(
    ("own", "current", "asked", "result"),
    [
        ({"a": 1}, {"a": 1}, {"b": 2}, {"b": 2}),  # nobody else wrote
        ([1], [1], [2], [2]),  # of any type, then
        ({"a": 1}, {"a": 1, "x": 9}, {"a": 2}, {"a": 2, "x": 9}),  # both stay
        ({"a": 1}, {"a": 5}, {"a": 1}, {"a": 5}),  # theirs, where the holder changes nothing
        ({"a": 1}, {"a": 5}, {"a": 2}, {"a": 2}),  # the holder's, where both change
        ({"a": 1, "b": 1}, {"b": 1}, {"a": 1, "b": 2}, {"b": 2}),  # they removed one
        ({"a": 1, "b": 1}, {"a": 1, "b": 1, "x": 9}, {"b": 1}, {"b": 1, "x": 9}),  # holder did
        (None, {"x": 9}, {"a": 1}, {"a": 1, "x": 9}),  # no state is an empty one
        ({}, {"x": 9}, None, {"x": 9}),
        ({"a": 1}, {"a": 1, "x": None}, {"a": 2}, {"a": 2, "x": None}),  # None is a value
        ({1: "n"}, {1: "n", (2,): {3}}, {1: "m"}, {1: "m", (2,): {3}}),  # of any keys
        ({"a": float("nan")}, {"a": float("nan"), "x": 1}, {}, {"x": 1}),  # compared as stored
    ],
)
def test_states_are_merged_by_key(own: Any, current: Any, asked: Any, result: Any) -> None:
    """What the holder leaves alone is others', what it changes is its own."""
    assert merged(own, current, asked) == result


@pytest.mark.parametrize(("current", "asked"), [({"x": 9}, [2]), ([9], {"a": 2}), ([9], [2])])
def test_only_dicts_are_merged(current: Any, asked: Any) -> None:
    """Otherwise one side would wipe out the other's write in silence."""
    with pytest.raises(UsageError, match="only dicts can be merged"):
        merged({"a": 1}, current, asked)


@pytest.mark.requires("hypothesis")
def test_no_interleaving_loses_a_write() -> None:
    """Whatever holder and others write into keys of their own, in whatever order, is there."""
    from hypothesis import given
    from hypothesis import strategies as st

    step = st.tuples(st.sampled_from(["update", "change", "other"]), st.integers(0, 2))

    @given(st.lists(step, max_size=20))
    def check(steps: list[tuple[str, int]]) -> None:
        own = current = NOTHING
        mine: dict[str, int] = {}
        theirs: dict[str, int] = {}
        for count, (kind, key) in enumerate(steps):
            state = values.decode(current) or {}
            assert isinstance(state, dict)
            if kind == "other":
                theirs[f"their-{key}"] = count
                current = values.encode({**state, f"their-{key}": count})
            elif kind == "change":
                mine[f"my-{key}"] = count
                new = values.encode({**state, f"my-{key}": count})
                own, current = primitives.own_after(own, current, new), new
            else:
                mine[f"my-{key}"] = count
                asked = values.encode(mine)
                own, current = asked, primitives.merge_states(own, current, asked)
        assert (values.decode(current) or {}) == {**mine, **theirs}

    check()


def held(**fields: Any) -> LeaseRecord:
    terms = Terms.of(20.0)
    first = primitives.acquired(
        None, key="k", holder="h", label="l", terms=terms, boot="", state=msgspec.Raw(b"1"),
        nonce="n",
    )  # fmt: skip
    return msgspec.structs.replace(first, **fields)


@pytest.mark.parametrize(
    ("lease", "updated", "now", "verdict"),
    [
        (None, 0, 0, "takeable"),
        (held(holder=""), 0, 0, "takeable"),
        (held(), 100, 122, "alive"),
        (held(), 100, 122.1, "expired"),
        (held(renewed=100), 121, 122.1, "expired"),  # others wrote: that renews nothing
        (held(boot="old"), 100, 100, "expired"),
        (held(boot="now"), 100, 100, "alive"),
    ],
)
def test_when_a_lease_may_be_taken(
    lease: LeaseRecord | None, updated: float, now: float, verdict: str
) -> None:
    """Free, or its holder's last write older than ttl + margin, or of a boot before this one."""
    assert primitives.verdict(lease, updated=updated, now=now, boot="now") == verdict


def test_a_release_keeps_the_epoch_and_nothing_of_the_holder() -> None:
    """So that the next epoch is higher."""
    first = held()
    free = primitives.released(first, nonce="m", state=msgspec.Raw(b"2"))
    second = primitives.acquired(
        free, key="k", holder="i", label="", terms=Terms.of(12.0), boot="", nonce="o",
        state=free.state,
    )  # fmt: skip

    assert free == LeaseRecord(key="k", epoch=1, nonce="m", state=msgspec.Raw(b"2"))
    assert (second.epoch, second.holder, bytes(second.state)) == (2, "i", b"2")


def test_a_write_of_others_keeps_the_first_renewal() -> None:
    """However many of them follow each other."""
    once = primitives.written_by_others(
        "k", held(), updated=100.0, nonce="x", state=msgspec.Raw(b"{}")
    )
    twice = primitives.written_by_others(
        "k", once, updated=110.0, nonce="y", state=msgspec.Raw(b"{}")
    )
    after = primitives.renewal(twice, nonce="z", state=twice.state, boot="")

    assert (once.renewed, twice.renewed, after.renewed) == (100.0, 100.0, 0.0)
    assert (twice.holder, twice.epoch) == ("h", 1)


def test_what_is_shown_of_a_holder() -> None:
    """Six digits of a digest, which lead back to no token."""
    digest = primitives.digest_of("secret")
    assert len(digest) == 64
    assert primitives.shown(digest) == digest[:6]
    assert repr(KEEP) == "KEEP"
