"""Schedules: when their ticks are, and what is to become of late and overlapping ones.

Two kinds of times of day, as in Debian's cron:

- *Fixed*: neither the minute nor the hour field starts with `*`. Such a tick happens once on
  each local day it names: in a gap of the clock at the first moment after it, in a repeated hour
  the first time.
- *Running*: anything else follows elapsed time: whenever the local clock shows a time that
  fits. What the clock leaves out does not happen, what it shows twice happens twice.

`cronsim` knows the calendar. It is asked in local time without a zone, and the zone is dealt with
here: asked in a zone it loses the hours behind a gap at midnight, and its times can go backwards
in a repeated hour (tests/protocol/test_cron_zones.py compares with every minute of each zone).
"""

from __future__ import annotations

import functools
import hashlib
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

import msgspec
from cronsim import CronSim, CronSimError

from durable.errors import UsageError
from durable.protocol import durations

CatchUp = Literal["skip", "latest", "all"] | int
Overlap = Literal["skip", "queue", "cancel-old", "allow"]

CATCH_UP_MAX = 1000  # ticks; what is older is never looked at
JITTER_STEPS = 1 << 32
# No zone changes its clock twice within a week (true of every one from 2024 to 2037).
CHANGE_STEP = 7 * 86400
_MINUTE = timedelta(minutes=1)


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """Ticks at times of day. Made by `durable.cron`, which checks it."""

    expression: str
    tz: str = "UTC"

    def __str__(self) -> str:
        return f"{self.expression} ({self.tz})"


class Every(msgspec.Struct, frozen=True, tag="every"):
    """Ticks at the multiples of an interval, counted from 1970-01-01T00:00Z."""

    seconds: int

    def __str__(self) -> str:
        return f"every {durations.text(self.seconds)}"


When = Cron | Every


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a workflow runs by itself. Made by `durable.cron` and `durable.every`.

    Attributes:
        when: its ticks.
        catch_up: what becomes of ticks that nobody was there for.
        overlap: what becomes of a tick whose predecessor's run is not over.
        jitter: seconds over which the starts are spread; the same tick always gets the same.
    """

    when: When
    catch_up: CatchUp = "latest"
    overlap: Overlap = "skip"
    jitter: float = 0.0

    @property
    def catch_up_max(self) -> int:
        """How many missed ticks are made up for."""
        if isinstance(self.catch_up, int):
            return self.catch_up
        return {"skip": 0, "latest": 1, "all": CATCH_UP_MAX}[self.catch_up]


def cron(
    expression: str,
    *,
    tz: str = "UTC",
    catch_up: CatchUp = "latest",
    overlap: Overlap = "skip",
    jitter: durations.Duration = 0,
) -> Schedule:
    """Ticks at times of day: `cron("0 2 * * *", tz="Europe/Rome")`.

    Args:
        expression: minute, hour, day of month, month, day of week. A tick at a fixed time of day
            happens exactly once on each local day, also where the clock is changed.
        tz: an IANA time zone.
        catch_up: of ticks missed while no worker lived: `skip`; `latest` runs the last one;
            `all` runs each, at most 1,000; a number runs at most so many of the last.
        overlap: while the run of the tick before is not over: `skip` the tick; `queue` it until
            then; `cancel-old` cancels that run first; `allow` both.
        jitter: spreads the starts over so many seconds.

    Raises:
        UsageError: the expression or the zone does not exist, or the options do not fit.
    """
    return _checked(Schedule(_checked_cron(expression, tz), catch_up, overlap, _jitter(jitter)))


def every(
    interval: durations.Duration,
    *,
    catch_up: CatchUp = "latest",
    overlap: Overlap = "skip",
    jitter: durations.Duration = 0,
) -> Schedule:
    """Ticks at the multiples of an interval since 1970-01-01T00:00Z: `every("15m")`.

    Args:
        interval: whole seconds, at least 1.
        catch_up: as of `cron`.
        overlap: as of `cron`.
        jitter: as of `cron`.

    Raises:
        UsageError: the interval is no whole number of seconds, or the options do not fit.
    """
    seconds = durations.seconds(interval)
    if seconds < 1 or seconds != int(seconds):
        raise UsageError(
            f"every({interval!r}): the interval is a whole number of seconds, at least 1"
        )
    return _checked(Schedule(Every(int(seconds)), catch_up, overlap, _jitter(jitter)))


def _checked_cron(expression: str, tz: str) -> Cron:
    given: object
    for name, given in {"cron": expression, "tz": tz}.items():  # callers may not be type-checked
        if not isinstance(given, str):
            raise UsageError(
                f"{name}: {given!r} is no text", hint='cron("0 2 * * *", tz="Europe/Rome")'
            )
    found = Cron(" ".join(expression.split()), tz)
    if len(found.expression.split()) != 5:
        raise UsageError(
            f"the cron expression {expression!r} does not have 5 fields",
            hint="minute, hour, day of month, month, day of week; for seconds: every('10s')",
        )
    try:
        CronSim(found.expression, datetime(2024, 1, 1))  # noqa: DTZ001  # any moment will do
    except CronSimError as e:
        raise UsageError(f"the cron expression {expression!r} is wrong: {e}") from e
    _zone(tz)
    return found


def _jitter(jitter: durations.Duration) -> float:
    return durations.seconds(jitter) if jitter else 0.0


def _checked(schedule: Schedule) -> Schedule:
    catch_up, overlap = schedule.catch_up, schedule.overlap
    if isinstance(catch_up, int):
        known = not isinstance(catch_up, bool) and 1 <= catch_up <= CATCH_UP_MAX
    else:
        known = catch_up in ("skip", "latest", "all")
    if not known:
        raise UsageError(
            f"catch_up={catch_up!r}: 'skip', 'latest', 'all', or a number up to {CATCH_UP_MAX}"
        )
    if overlap not in ("skip", "queue", "cancel-old", "allow"):
        raise UsageError(f"overlap={overlap!r}: 'skip', 'queue', 'cancel-old' or 'allow'")
    if schedule.catch_up_max > 1 and overlap not in {"queue", "allow"}:
        raise UsageError(
            f"catch_up={catch_up!r} with overlap={overlap!r} would start several runs and let "
            "only one of them be",
            hint="take overlap='queue' (one after the other) or 'allow' (side by side)",
        )
    return schedule


# -- ticks ----------------------------------------------------------------------------------------


def ticks(when: When, after: float) -> Iterator[float]:
    """The ticks later than `after`, in order. Ends if there is none within 50 years.

    Raises:
        UsageError: the zone is not known on this machine.
    """
    while (found := next_tick(when, after)) is not None:
        yield found
        after = found


def next_tick(when: When, after: float) -> float | None:
    """The first tick later than `after`; see `ticks`."""
    if isinstance(when, Every):
        return (after // when.seconds + 1) * when.seconds
    zone = _zone(when.tz)
    minute, hour, *_ = when.expression.split()
    running = minute.startswith("*") or hour.startswith("*")
    find = _next_running if running else _next_fixed
    found = find(when.expression, zone, int(after // 1))
    return None if found is None else float(found)


def newest(when: When, after: float, until: float, count: int) -> list[float]:
    """The last `count` ticks later than `after` and not later than `until`, in order.

    However long that is, the work is bounded by `count`.
    """
    span = 3600.0
    while True:
        begin = max(after, until - span)
        found: list[float] = []
        for tick in ticks(when, begin):
            if tick > until:
                break
            found.append(tick)
        if begin == after or len(found) >= count:
            return found[-count:]
        span *= 2


def delay(schedule: Schedule, name: str, tick: float) -> float:
    """The jitter of that tick, in seconds: the same for whoever asks."""
    if not schedule.jitter:
        return 0.0
    digest = hashlib.sha256(f"{name}\n{tick:.0f}".encode()).digest()
    return schedule.jitter * (int.from_bytes(digest[:4], "big") / JITTER_STEPS)


@functools.lru_cache(maxsize=64)
def _zone(tz: str) -> tzinfo:
    try:
        return UTC if tz == "UTC" else zoneinfo.ZoneInfo(tz)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError) as e:
        raise UsageError(
            f"the time zone {tz!r} is not known here",
            hint="write an IANA name such as 'Europe/Rome'; `pip install tzdata` brings them all",
        ) from e


def _next_fixed(expression: str, zone: tzinfo, after: int) -> int | None:
    """The local times in order, each once."""
    for local in CronSim(expression, _local(after, zone)):
        moment = _first_valid(local, zone)
        if moment > after:  # else: it was in the hour that is being repeated
            return moment
    return None


def _first_valid(local: datetime, zone: tzinfo) -> int:
    while True:
        moment = int(local.replace(tzinfo=zone, fold=0).timestamp())
        if _local(moment, zone) == local:
            return moment
        local += _MINUTE


def _next_running(expression: str, zone: tzinfo, after: int) -> int | None:
    """The first match under the offset that holds, unless the offset changes before it."""
    begin = after  # everything up to here has been looked at
    while True:
        offset = _offset(begin + 1, zone)
        local = next(CronSim(expression, _naive(begin + offset)), None)
        if local is None:
            return None
        moment = int(local.replace(tzinfo=UTC).timestamp()) - offset
        changed = _first_change(zone, begin + 1, moment)
        if changed is None:
            return moment
        begin = changed - 1


def _first_change(zone: tzinfo, begin: int, end: int) -> int | None:
    """The first second up to `end` with another offset than `begin` has."""
    offset = _offset(begin, zone)
    while begin < end:
        step = min(end, begin + CHANGE_STEP)
        if _offset(step, zone) != offset:
            return _bisect(zone, begin, step, offset)
        begin = step
    return None


def _bisect(zone: tzinfo, same: int, other: int, offset: int) -> int:
    while other - same > 1:
        middle = (same + other) // 2
        if _offset(middle, zone) == offset:
            same = middle
        else:
            other = middle
    return other


def _offset(moment: int, zone: tzinfo) -> int:
    found = datetime.fromtimestamp(moment, zone).utcoffset()
    assert found is not None
    return int(found.total_seconds())


def _local(moment: int, zone: tzinfo) -> datetime:
    """What the clocks of the zone show, without the zone."""
    return datetime.fromtimestamp(moment, zone).replace(tzinfo=None, fold=0)


def _naive(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
