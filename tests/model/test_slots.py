"""The rules of a limited queue's slots, over every interleaving of a small world; see slots.py."""

from __future__ import annotations

import pytest

from tests.model import slots
from tests.model.exploring import explore
from tests.model.slots import CODE, DEATHLESS, SMALLER, START, Rule


def test_never_two_at_once_and_nobody_is_lost() -> None:
    """However long dispatchers stall, and a run sleeps and comes back."""
    found = explore(DEATHLESS, slots.steps(CODE), slots.wrong(CODE))

    assert not found.wrong, "\n".join([found.wrong, *found.trace])
    assert found.states > 1_000


@pytest.mark.parametrize("rule", SMALLER, ids=lambda rule: rule.name)
def test_no_part_of_it_can_be_left_out(rule: Rule) -> None:
    """Without any one there is a story in which two go on at once, or one is lost."""
    found = explore(START, slots.steps(rule), slots.wrong(rule))

    assert found.wrong
