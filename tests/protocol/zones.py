"""What cron must do around a change of the clock, by looking at every minute.

It knows nothing of time zones but the moment of the change and the offsets before and after, and
nothing of `cronsim`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

FIRST, LAST = datetime(2024, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)
AROUND = 26 * 3600  # seconds looked at before and after a change
SCAN = 3600  # no zone keeps an offset for less

FORMS = (
    "30 2 * * *",  # in most gaps
    "30 1 * * *",  # in most repeated hours
    "0 0 * * *",  # midnight, which some zones leave out
    "0,30 2 * * *",  # both in the gap: one run
    "15 1-3 * * *",
    "0 3 * * 0",
    "45 23 28-31 * *",
    "*/15 * * * *",
    "0 * * * *",
    "0 */2 * * *",
    "*/20 1 * * 0",  # a running form that begins on the day of most changes
    "*/5 0 * * 6,0",
)
DAYS = 7


@dataclass(frozen=True)
class Changeover:
    """One change of a clock: at the moment `at` the offset goes from `before` to `after`."""

    at: int
    before: int
    after: int

    @property
    def window(self) -> tuple[int, int]:
        return self.at - AROUND, self.at + AROUND


def changeovers(zone: str) -> Iterator[Changeover]:
    """Every change of that zone's clock from 2024 to 2037."""
    tz = ZoneInfo(zone)
    begin = int(FIRST.timestamp())
    before = _offset(begin, tz)
    for moment in range(begin + SCAN, int(LAST.timestamp()) + 1, SCAN):
        after = _offset(moment, tz)
        if after != before:
            yield Changeover(_bisect(moment - SCAN, moment, tz, before), before, after)
            before = after


def _bisect(same: int, other: int, tz: ZoneInfo, offset: int) -> int:
    while other - same > 1:
        middle = (same + other) // 2
        if _offset(middle, tz) == offset:
            same = middle
        else:
            other = middle
    return other


def _offset(moment: int, tz: ZoneInfo) -> int:
    found = datetime.fromtimestamp(moment, tz).utcoffset()
    assert found is not None
    return int(found.total_seconds())


@functools.cache  # the zones of a continent change together
def expected(form: str, change: Changeover) -> list[int]:
    """The ticks inside the window."""
    begin, end = change.window
    fits = _matcher(form)
    minute, hour, *_ = form.split()
    if minute.startswith("*") or hour.startswith("*"):
        found = {t for t in range(begin, end, 60) if fits(_clock(t, change))}
    else:
        found = {_once(local, change) for local in _minutes(change) if fits(local)}
    return sorted(t for t in found if begin < t < end)


def _clock(moment: int, change: Changeover) -> datetime:
    """What the clock shows at that moment."""
    offset = change.before if moment < change.at else change.after
    return datetime.fromtimestamp(moment + offset, UTC)


def _minutes(change: Changeover) -> Iterator[datetime]:
    """Every local minute around the window, whether the clock shows it or not."""
    begin, end = change.window
    local = datetime.fromtimestamp(begin - 86400, UTC).replace(second=0)
    while local.timestamp() < end + 86400:
        yield local
        local += timedelta(minutes=1)


def _once(local: datetime, change: Changeover) -> int:
    """The first moment at which the clock shows that minute, else the one after the gap."""
    shown = int(local.timestamp())
    moments = [
        t for t in (shown - change.before, shown - change.after) if _clock(t, change) == local
    ]
    return min(moments, default=change.at)


def _matcher(form: str) -> Callable[[datetime], bool]:
    minute, hour, day, month, weekday = form.split()
    minutes, hours = _field(minute, range(60)), _field(hour, range(24))
    days, months, weekdays = (
        _field(day, range(1, 32)),
        _field(month, range(1, 13)),
        _field(weekday, range(7)),
    )

    def fits(local: datetime) -> bool:
        return (
            local.minute in minutes
            and local.hour in hours
            and local.day in days
            and local.month in months
            and local.isoweekday() % DAYS in weekdays
        )

    return fits


def _field(text: str, every: range) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        body, _, step = part.partition("/")
        low, _, high = body.partition("-")
        numbers = every if body == "*" else range(int(low), int(high or low) + 1)
        found |= set(list(numbers)[:: int(step or 1)])
    return found
