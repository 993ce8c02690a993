"""The test of the tester: some planted bugs are found here, all of them by `nox -s planted`."""

from __future__ import annotations

import pytest

from tests.simulation.hunt import hunt
from tests.simulation.planted import BUGS

# Those that the scenarios or the first seeds find; the others take longer.
QUICK = [
    "one_name_per_epoch",
    "handed_over_before_it_is_recorded",
    "failed_attempts_are_not_recorded",
    "renewal_without_the_precondition",
    "expiry_by_the_local_wall_clock",
    "a_clock_blind_to_suspend",
    "renewed_on_the_loop_of_the_bodies",
    "nobody_looks_at_the_lease",
    "a_taker_that_does_not_fence",
    "owner_token_is_the_host_name",
    "epoch_not_raised_on_takeover",
    "a_cache_of_lists",
    "an_ordinary_body_does_not_wait_for_groups",
    "a_late_group_is_passed_over",
    "a_run_ends_before_its_last_group",
    "the_lock_is_freed_before_the_result",
    "whoever_comes_takes_a_free_lock",
    "a_slot_is_relied_on_after_a_takeover",
    "parked_runs_keep_their_slots",
    "overlaps_are_judged_by_the_live_index",
    "only_who_decides_starts_the_tick",
    "a_key_is_looked_up_and_not_claimed",
    "an_outbox_is_emptied_whatever_is_in_it",
    "a_later_owner_knows_no_deadline",
    "overdue_waits_end_as_they_stand_in_the_code",
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", QUICK)
def test_planted_bugs_are_found(name: str) -> None:
    """With a rule of the protocol broken, the same simulations fail."""
    found = hunt(name, 200)

    assert found.case, f"{name} was not found in {found.tried} cases"


def test_quick_bugs_exist() -> None:
    """The list above names planted bugs."""
    assert set(QUICK) <= set(BUGS)


@pytest.mark.parametrize("name", BUGS)
def test_each_bug_can_be_planted(name: str) -> None:
    """What a planted bug changes is there to be changed."""
    with BUGS[name]():
        pass
