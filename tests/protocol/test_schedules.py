"""When ticks are: cron by local clocks, intervals by multiples, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.errors import UsageError
from durable.protocol import schedules
from durable.protocol.schedules import Schedule, cron, every

MOMENTS = st.floats(0, 4e9)
FORMS = ["* * * * *", "*/15 * * * *", "30 2 * * *", "0 0 1 * *", "0 9 * * MON-FRI", "0 0 29 2 *"]
ZONES = ["UTC", "Europe/Rome", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]
SCHEDULES = st.one_of(
    st.builds(cron, st.sampled_from(FORMS), tz=st.sampled_from(ZONES)),
    st.builds(every, st.integers(1, 10**6)),
)


def at(text: str, tz: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp()


def local(moment: float | None, tz: str) -> str:
    assert moment is not None
    return datetime.fromtimestamp(moment, ZoneInfo(tz)).strftime("%Y-%m-%d %H:%M %Z")


@pytest.mark.parametrize(
    ("form", "tz", "after", "next_ones"),
    [
        (
            "30 1 * * *", "America/New_York", "2026-10-31T12:00",
            ["2026-11-01 01:30 EDT", "2026-11-02 01:30 EST"],
        ),
        (
            "30 2 * * *", "America/New_York", "2026-03-07T12:00",
            ["2026-03-08 03:00 EDT", "2026-03-09 02:30 EDT"],
        ),
        (
            "0 0 * * *", "America/Santiago", "2026-09-05T12:00",
            ["2026-09-06 01:00 -03", "2026-09-07 00:00 -03"],
        ),
        (
            "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00",
            ["2026-10-04 02:30 +11", "2026-10-05 02:15 +11"],
        ),
        (
            "0 * * * *", "Europe/Rome", "2026-10-25T01:30",
            ["2026-10-25 02:00 CEST", "2026-10-25 02:00 CET", "2026-10-25 03:00 CET"],
        ),
        ("0 9 * * MON-FRI", "UTC", "2026-11-28T00:00", ["2026-11-30 09:00 UTC"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", ["2028-02-29 00:00 UTC"]),
    ],
)  # fmt: skip
def test_ticks_of_cron(form: str, tz: str, after: str, next_ones: list[str]) -> None:
    """A fixed time of day happens once a day, a running form follows elapsed time."""
    found = schedules.ticks(cron(form, tz=tz).when, at(after, tz))

    assert [local(t, tz) for t in itertools.islice(found, len(next_ones))] == next_ones


def test_in_the_repeated_hour_a_fixed_time_is_over() -> None:
    """Asked in the second 01:45, the job of 01:50 has run already: tomorrow."""
    second = datetime(2026, 11, 1, 1, 45, fold=1, tzinfo=ZoneInfo("America/New_York")).timestamp()

    found = schedules.next_tick(cron("50 1 * * *", tz="America/New_York").when, second)

    assert local(found, "America/New_York") == "2026-11-02 01:50 EST"


def test_intervals_are_multiples() -> None:
    """Every process means the same ticks, whenever it was started."""
    found = schedules.ticks(every("15m").when, at("2026-11-29T10:07"))

    texts = [local(t, "UTC") for t in itertools.islice(found, 2)]
    assert texts == ["2026-11-29 10:15 UTC", "2026-11-29 10:30 UTC"]


@given(SCHEDULES, MOMENTS)
def test_the_next_tick_is_later_and_the_first(schedule: Any, moment: float) -> None:
    """Strictly later; and asked anywhere before it, the same tick is next."""
    found = schedules.next_tick(schedule.when, moment)

    assert found is not None
    assert found > moment
    assert found == int(found)
    between = (moment + found) / 2
    if between < found:  # floats
        assert schedules.next_tick(schedule.when, between) == found


@given(SCHEDULES, MOMENTS, st.floats(0, 1e7), st.integers(1, 20))
def test_the_newest_are_the_last(schedule: Any, after: float, span: float, count: int) -> None:
    """`newest` is the tail of all ticks in the time asked for."""
    span = min(span, 200 * getattr(schedule.when, "seconds", 600))
    upto = itertools.takewhile(
        lambda tick: tick <= after + span, schedules.ticks(schedule.when, after)
    )

    assert schedules.newest(schedule.when, after, after + span, count) == list(upto)[-count:]


def test_years_of_absence_cost_little() -> None:
    """The last ticks of each minute of ten years are found without walking through them."""
    found = schedules.newest(cron("* * * * *").when, 0.0, at("2026-11-29T10:07"), 3)

    assert [local(t, "UTC")[11:16] for t in found] == ["10:05", "10:06", "10:07"]


@given(st.floats(0, 1e10), st.floats(0.001, 1e5))
def test_jitter_is_the_same_for_everybody(tick: float, jitter: float) -> None:
    """It depends on the schedule's name and the tick alone, and is below its bound."""
    schedule = every("1h", jitter=jitter)

    delay = schedules.delay(schedule, "a", tick)

    assert 0 <= delay < jitter
    assert delay == schedules.delay(schedule, "a", tick)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: cron("0 2 * *"), "5 fields"),
        (lambda: cron("*/10 * * * * *"), "5 fields"),
        (lambda: cron("61 2 * * *"), "Bad minute"),
        (lambda: cron("0 0 31 2 *"), "Bad day-of-month"),
        (lambda: cron("0 2 * * *", tz="Europe/Atlantis"), "Atlantis"),
        (lambda: cron("0 2 * * *", tz="../etc/passwd"), "time zone"),
        (lambda: every(0), "at least 1"),
        (lambda: every("1500ms"), "whole number"),
        (lambda: every("1h", catch_up=0), "catch_up=0"),
        (lambda: every("1h", catch_up="last"), "catch_up='last'"),
        (lambda: every("1h", overlap="kill"), "overlap='kill'"),
        (lambda: every("1h", catch_up="all"), "several runs"),
        (lambda: every("1h", jitter=-1), "negative"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make: Any, said: str) -> None:
    """A bad schedule is an error of the line that makes it, and says what is wrong."""
    with pytest.raises(UsageError, match=said):
        make()


def test_a_schedule_reads_as_it_was_written() -> None:
    """In words, for lists."""
    assert str(cron("0  2 * * *", tz="Europe/Rome").when) == "0 2 * * * (Europe/Rome)"
    assert str(every("90m").when) == "every 1h30m"


@pytest.mark.parametrize(
    "make",
    [
        lambda: cron(5),  # type: ignore[arg-type]  # what is not type-checked
        lambda: cron(None),  # type: ignore[arg-type]  # the same
        lambda: cron("0 2 * * *", tz=[]),  # type: ignore[arg-type]  # the same
        lambda: cron("0 2 * * *", catch_up=[]),  # type: ignore[arg-type]  # the same
        lambda: cron("0 2 * * *", overlap={}),  # type: ignore[arg-type]  # the same
        lambda: every([]),  # type: ignore[arg-type]  # the same
    ],
)
def test_values_of_other_types_are_usage_errors(make: Callable[[], Schedule]) -> None:
    """No matter what is given: the error is about the argument."""
    with pytest.raises(UsageError):
        make()
