"""Rows of the bug log whose trial is a test elsewhere: each of those tests exists."""

from __future__ import annotations

import ast

import pytest

from tests.commands import ROOT

TESTS = {
    "B02": (
        "runtime/test_worker.py",
        "test_a_draining_worker_gives_back_runs_at_once_or_after_the_grace",
    ),
    "B10": ("runtime/test_lease.py", "test_blocked_event_loop"),
    "B11": (
        "runtime/test_worker.py",
        "test_a_zombie_that_wakes_after_the_takeover_changes_nothing",
    ),
    "B12a": ("runtime/test_lease.py", "test_suspended_and_fenced"),
    "B12b": ("runtime/test_lease.py", "test_suspended_and_not_fenced"),
    "B13": ("runtime/test_worker.py", "test_a_live_holder_is_never_robbed"),
    "B20": ("store/test_recognition.py", "test_a_name_that_keeps_vanishing_ends_with_patience"),
    "B25": ("runtime/test_owners.py", "test_a_worker_stopped_at_any_moment_leaves_no_lease"),
    "B67": ("protocol/test_cron_zones.py", "test_every_tick_is_where_the_minutes_say"),
    "B68": ("protocol/test_schedules.py", "test_ticks_of_cron"),
    "B71": ("protocol/test_ticks.py", "test_catching_up_after_26_hours"),
    "B71 with workers": ("runtime/test_scheduler.py", "test_all_down_for_26_ticks"),
    "B73": ("waits/test_sleeping.py", "test_sleep_ends_at_its_deadline"),
    "B73 refused": ("waits/test_sleeping.py", "test_impossible_sleeps_are_refused_at_the_call"),
    "B73 year 9999": ("waits/test_sleeping.py", "test_sleep_until_the_last_year"),
    "B74": ("waits/test_sleeping.py", "test_deadline_survives_crashes"),
    "B74 of an event": ("waits/test_events.py", "test_deadline_of_a_parked_wait"),
}


@pytest.mark.parametrize("row", TESTS)
def test_row_has_its_test(row: str) -> None:
    """The test that tries this report is there under its name."""
    file, name = TESTS[row]
    tree = ast.parse((ROOT / "tests" / file).read_text())

    assert name in {getattr(node, "name", "") for node in tree.body}
