"""Groups of outcomes, over every interleaving of a small world; see groups.py."""

from __future__ import annotations

import pytest

from tests.model import groups
from tests.model.exploring import explore
from tests.model.groups import START, Rules
from tests.model.late_records import Size, oldest_owner_first

SIZES = [Size("abXY", 3), Size("aXY", 4)]  # 16,000 and 79,000 states
SMALL = SIZES[0]

BROKEN = {
    "an ordinary body begins before the group is recorded": Rules(before_bodies=False),
    "an ordinary record is sent before the group": Rules(before_records=False),
    "two groups are under way": Rules(under_way=2),
    "an owner that is refused takes the next place": Rules(refused_ends=False),
    "a late group is put before what was seen": Rules(order=oldest_owner_first),
}


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_rules_hold(size: Size) -> None:
    """However owners die and groups land, what anybody could see follows from one record."""
    found = explore(START, groups.steps(Rules(), size), groups.wrong)

    assert not found.wrong, "\n".join([found.wrong, *found.trace])
    assert found.states > 15_000


@pytest.mark.parametrize("rules", BROKEN.values(), ids=BROKEN)
def test_each_rule_is_needed(rules: Rules) -> None:
    """Without it there is a story in which something follows from an outcome that was lost."""
    found = explore(START, groups.steps(rules, SMALL), groups.wrong)

    assert found.wrong
    assert len(found.trace) >= 9, "a shorter story than any there is: the model has changed"
