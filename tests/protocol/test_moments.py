"""The times in names: byte order is time order, and what is due by its name is due."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from durable.protocol import moments

times = st.floats(min_value=0, max_value=moments.LATEST)


@given(times)
def test_a_hint_is_never_named_before_its_time(moment: float) -> None:
    """Nobody who goes by the name comes early; nor more than a few milliseconds late."""
    named = moments.seconds(moments.stamp_after(moment))

    assert moment <= named < moment + 0.003


@given(times)
def test_a_name_says_the_time_that_it_is_read_as(moment: float) -> None:
    """What is read from a stamp has that stamp."""
    read = moments.seconds(moments.stamp_after(moment))

    assert moments.stamp_after(read) == moments.stamp_after(moment)


@given(times, times)
def test_the_order_of_names_is_the_order_of_times(one: float, other: float) -> None:
    """A list by name can stop at the first that is not due."""
    if one <= other:
        assert moments.stamp_after(one) <= moments.stamp_after(other)


@given(st.floats(min_value=moments.LATEST, allow_infinity=False))
def test_what_is_later_than_every_name_has_the_last(moment: float) -> None:
    """A deadline that somebody else wrote into the store stops no worker."""
    assert moments.second(moment) == "9999-12-31T23:59:59Z"
    assert moments.seconds(moments.stamp_after(moment)) == moments.LATEST
