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
    "B43": ("waits/test_events.py", "test_event_or_deadline_is_decided_once"),
    "B56": ("runtime/test_errors_and_values.py", "test_errors"),
    "B56 rebuilt": ("protocol/test_failures.py", "test_same_class"),
    "B73": ("waits/test_sleeping.py", "test_sleep_ends_at_its_deadline"),
    "B73 refused": ("waits/test_sleeping.py", "test_impossible_sleeps_are_refused_at_the_call"),
    "B73 year 9999": ("waits/test_sleeping.py", "test_sleep_until_the_last_year"),
    "B74": ("waits/test_sleeping.py", "test_deadline_survives_crashes"),
    "B74 of an event": ("waits/test_events.py", "test_deadline_of_a_parked_wait"),
    "B76": ("waits/test_events.py", "test_events_are_kept_and_come_in_order"),
    "B76 with crashes": ("waits/test_events.py", "test_crash_at_each_write"),
    "B77": ("waits/test_standing.py", "test_sending_at_every_call_around_completion"),
    "B79": ("waits/test_children.py", "test_cancelled_and_purged_children"),
    "B79 rejected": ("waits/test_children.py", "test_id_of_another_run_is_refused"),
    "B80": ("waits/test_children.py", "test_crash_between_start_and_record"),
    "B88": ("runtime/test_run_cancelled_by_workers.py", "test_cancelled_at_every_store_call"),
    "B89": ("runtime/test_run_cancelled.py", "test_same_turn_as_the_end_of_a_body"),
    "B89 in a block": ("runtime/test_run_cancelled.py", "test_clean_up_under_a_deadline"),
    "B91": ("runtime/test_run_cancelled_by_workers.py", "test_stopped_at_every_store_call"),
    "B91 in a sleep": ("waits/test_parked.py", "test_drained_while_waiting_in_place"),
    "B94 named by doctor": ("doctor/test_platforms.py", "test_doctor_says_so"),
    "B96": (
        "runtime/test_worker.py",
        "test_a_run_that_kills_its_process_is_resumed_alone_and_then_needs_attention",
    ),
}


@pytest.mark.parametrize("row", TESTS)
def test_row_has_its_test(row: str) -> None:
    """The test that tries this report is there under its name."""
    file, name = TESTS[row]
    tree = ast.parse((ROOT / "tests" / file).read_text())

    assert name in {getattr(node, "name", "") for node in tree.body}
