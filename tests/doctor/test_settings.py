"""What a bucket's settings mean, as text and figures."""

from __future__ import annotations

import pytest

from durable.doctor.findings import Finding
from durable.doctor.settings import Settings, dead_copies, judge
from durable.doctor.speed import spread

WEEK = 7 * 86_400


def judged(settings: Settings, check: str) -> Finding:
    (found,) = [one for one in judge("gs://b", "payer", settings) if one.check == check]
    return found


def test_a_bucket_as_it_should_be_is_ok() -> None:
    """Every setting has a finding, none with something to do."""
    found = judge("gs://b", "", Settings())

    assert {(one.level, one.fix) for one in found} == {("ok", "")}
    assert len({one.check for one in found}) == 6


@pytest.mark.parametrize(
    ("settings", "check", "level", "fix"),
    [
        (Settings(retention=60), "retention", "refused", "--clear-retention-period"),
        (Settings(default_hold=True), "hold", "refused", "--no-default-event-based-hold"),
        (Settings(versioning=True), "versioning", "warning", "--no-versioning"),
        (Settings(soft_delete=WEEK), "soft-delete", "warning", "--clear-soft-delete"),
    ],
)
def test_what_can_be_changed_has_its_command(
    settings: Settings, check: str, level: str, fix: str
) -> None:
    """The command is complete, and for this bucket."""
    found = judged(settings, check)

    assert found.level == level
    assert found.fix == f"gcloud storage buckets update gs://b {fix}"


@pytest.mark.parametrize(
    ("settings", "check"),
    [
        (Settings(retention=60, retention_locked=True), "retention"),
        (Settings(hierarchical=True), "namespace"),
    ],
)
def test_what_is_for_ever_takes_another_bucket(settings: Settings, check: str) -> None:
    """No command is shown that could not work."""
    assert judged(settings, check).fix == "durable init gs://ANOTHER-BUCKET"


def test_soft_delete_is_told_in_money() -> None:
    """A lease that is renewed every third of 20 s leaves 90,720 copies in a week.

    B38, 2i2c-org/infrastructure#3696.
    """
    copies, dollars = dead_copies(WEEK)
    found = judged(Settings(soft_delete=WEEK), "soft-delete").found

    assert copies == 90_720
    assert dollars == pytest.approx(90_720 * 1_000 * 0.020 / 1e9)
    assert dead_copies(WEEK, ttl=60.0)[0] == copies / 3
    assert "7 days" in found
    assert "90,720 dead copies of it, $0.0018 a month (1,000 workers: $1.81)" in found


def test_the_median_and_the_slowest() -> None:
    """Of twenty samples the 99th percentile is the slowest; figures are in milliseconds."""
    found = spread([number / 1000 for number in range(20, 0, -1)])

    assert (found.p50_ms, found.p99_ms) == (10.0, 20.0)
    assert spread([number / 1000 for number in range(1, 201)]).p99_ms == 198.0
