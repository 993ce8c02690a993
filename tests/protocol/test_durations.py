"""Durations as people write them."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from durable.errors import UsageError
from durable.protocol.durations import seconds


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
