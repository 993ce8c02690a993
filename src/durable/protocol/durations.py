"""Durations as people write them: `90`, `2.5`, `timedelta(hours=2)`, `"1h30m"`."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

from durable.errors import UsageError

Duration = float | str | timedelta

LONGEST: Final = 365_250 * 86400.0  # a thousand years: what ends then still has a date

_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])", re.ASCII)
_TEXT = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_FORMS: Final = (
    "Write a number of seconds (90, 2.5), a timedelta, or text with the units d, h, m, s and ms, "
    'for example "1d", "1h30m", "500ms".'
)


def seconds(value: Duration) -> float:
    """A duration in seconds.

    Args:
        value: seconds, a timedelta, or text: `"1h30m"`, `"500ms"`, `"90"` (seconds).

    Raises:
        UsageError: it is negative, longer than a thousand years, not a number, or cannot be read.
    """
    given: object = value  # callers may not be type-checked
    if isinstance(given, timedelta):
        length = given.total_seconds()
    elif isinstance(given, str):
        length = _parsed(given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        length = _float(given)
    else:
        raise UsageError(f"a duration cannot be a {type(given).__name__}", hint=_FORMS)
    if not math.isfinite(length):
        raise UsageError(f"a duration must be finite, not {length}", hint=_FORMS)
    if length < 0:
        raise UsageError(f"a duration must not be negative, and {value!s} is", hint=_FORMS)
    if length > LONGEST:
        raise UsageError(
            f"a duration must not be longer than a thousand years, and {str(value)[:40]} is",
            hint="leave it out if there is to be no limit",
        )
    return length + 0.0  # -0.0 becomes 0.0


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _parsed(text: str) -> float:
    compact = text.strip().replace(" ", "").lower()
    if _NUMBER.fullmatch(compact):
        return float(compact)
    if not _TEXT.fullmatch(compact):
        raise UsageError(f"{text[:40]!r} is not a duration", hint=_FORMS)
    return math.fsum(float(count) * _UNITS[unit] for count, unit in _PART.findall(compact))


def text(length: float) -> str:
    """Seconds as one writes them: `1h30m`, `500ms`."""
    left = round(length * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
