"""The times that stand in names: UTC, fixed width, so that byte order is time order."""

from __future__ import annotations

from datetime import UTC, datetime

LATEST = 253402300799.0  # the last second of the year 9999: no name holds a later one


def stamp(seconds: float) -> str:
    """Seconds since the epoch as `2026-11-29T19:04:43.123Z`; what is later than all as the last."""
    text = datetime.fromtimestamp(min(seconds, LATEST), UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def stamp_after(moment: float) -> str:
    """The first stamp that is not before that time, so that what is due by name is due."""
    text = stamp(moment)
    # Half a millisecond more: floats of far years count in tens of microseconds.
    return text if seconds(text) >= moment else stamp(seconds(text) + 0.0015)


def second(seconds: float) -> str:
    """The same without milliseconds, unless there are any: `2026-11-29T02:00:00Z`."""
    return stamp(seconds).replace(".000Z", "Z")


def seconds(stamp: str) -> float:
    """The time that a stamp says, in seconds since the epoch.

    Raises:
        ValueError: it is no stamp.
    """
    return datetime.fromisoformat(stamp).timestamp()
