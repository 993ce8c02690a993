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
}


@pytest.mark.parametrize("row", TESTS)
def test_row_has_its_test(row: str) -> None:
    """The test that tries this report is there under its name."""
    file, name = TESTS[row]
    tree = ast.parse((ROOT / "tests" / file).read_text())

    assert name in {getattr(node, "name", "") for node in tree.body}
