"""Durations as people write them."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from durable.errors import UsageError
from durable.protocol.durations import LONGEST, seconds
from durable.protocol.queues import Queue


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (-0.0, 0.0),
        (5, 5.0),
        (2.5, 2.5),
        (timedelta(hours=2, microseconds=1), 7200.000001),
        ("90", 90.0),
        ("0.5", 0.5),
        ("500ms", 0.5),
        ("5s", 5.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        (" 2H ", 7200.0),
        ("1d", 86400.0),
        ("1.5h", 5400.0),
        ("1d2h3m4s5ms", 93784.005),
        ("400d", 400 * 86400.0),
        (10**9, 1e9),
        (timedelta(days=365_000), 365_000 * 86400.0),
    ],
    ids=repr,
)
def test_accepted(value: Any, expected: float) -> None:
    """Numbers are seconds; timedeltas and text with units say what they mean."""
    result = seconds(value)

    assert result == expected
    assert type(result) is float
    assert math.copysign(1, result) == 1


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        timedelta(microseconds=-1),
        math.nan,
        math.inf,
        10**400,
        "",
        " ",
        "soon",
        "1x",
        "h",
        "1h30",
        "-5s",
        "1e3",
        "nan",
        "inf",
        "٣s",
        "9" * 400,
        "1 month",
        None,
        True,
        b"5s",
        [5],
    ],
    ids=lambda value: repr(value)[:20],
)
def test_refused(value: Any) -> None:
    """Everything else is refused, and the error shows what may be written."""
    with pytest.raises(UsageError) as caught:
        seconds(value)

    assert '"1h30m"' in str(caught.value)


@pytest.mark.parametrize("value", [1e12, "12000000d", timedelta.max, 1e300, "9" * 300], ids=str)
def test_what_would_end_after_all_dates_is_refused(value: Any) -> None:
    """Else a run that waits so long had no name for its hint, and no worker could park it."""
    with pytest.raises(UsageError, match="longer than a thousand years") as caught:
        seconds(value)

    assert len(str(caught.value)) < 200


def test_the_longest_quiet_time_ends() -> None:
    """What follows from a duration by default is one, too."""
    debounce = Queue("q", debounce=LONGEST).debounced("key", 0.0)

    assert (debounce.due, debounce.latest) == (LONGEST, LONGEST)
