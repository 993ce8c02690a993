"""Cron over every change of every clock: compared with a look at each minute.

A few zones here; `nox -s cron` takes all of them (DURABLE_CRON_ZONES=all).
"""

from __future__ import annotations

import os
import zoneinfo
from itertools import islice

import pytest

from durable.protocol.schedules import cron, next_tick
from tests.protocol.zones import FORMS, Changeover, changeovers, expected

SAMPLE = [
    "Africa/Casablanca",  # four changes in some years, by the moon
    "America/Havana",  # the gap begins at midnight
    "America/New_York",
    "America/Santiago",  # as Havana, on the southern half
    "Antarctica/Troll",  # two hours at once
    "Asia/Kolkata",  # never
    "Australia/Lord_Howe",  # half an hour
    "Europe/Rome",
]
CHANGES_OF_SAMPLE = 4
ALL = os.environ.get("DURABLE_CRON_ZONES") == "all"
ZONES = sorted(zoneinfo.available_timezones()) if ALL else SAMPLE


@pytest.mark.parametrize("zone", ZONES)
def test_every_tick_is_where_the_minutes_say(zone: str) -> None:
    """12 forms around every change from 2024 to 2037: no tick is lost, doubled or late."""
    for change in islice(changeovers(zone), None if ALL else CHANGES_OF_SAMPLE):
        for form in FORMS:
            assert fired(form, zone, change) == expected(form, change), (zone, form, change)


def fired(form: str, zone: str, change: Changeover) -> list[int]:
    """The ticks inside the window; each must be later than the one before."""
    begin, end = change.window
    when = cron(form, tz=zone).when
    found: list[int] = []
    moment = next_tick(when, begin)
    while moment is not None and moment < end:
        assert not found or moment > found[-1]
        found.append(int(moment))
        moment = next_tick(when, moment)
    return found


def test_the_oracle_sees_changes() -> None:
    """New York has two changes in each of the 14 years, Kolkata none."""
    assert len(list(changeovers("America/New_York"))) == 28
    assert list(changeovers("Asia/Kolkata")) == []
