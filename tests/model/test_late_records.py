"""The rule for late records, over every interleaving of a small world; see late_records.py."""

from __future__ import annotations

import pytest

from tests.model import late_records
from tests.model.exploring import explore
from tests.model.late_records import JOURNAL, SMALLER, START, Rule, Size

SIZES = [Size("ABC", 3), Size("AB", 4)]  # 103,000 and 21,000 states
SMALL = SIZES[1]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_journals_order_holds(size: Size) -> None:
    """However owners die and records land, all owners hand outcomes over in one order."""
    found = explore(START, late_records.steps(JOURNAL, size), late_records.wrong)

    assert not found.wrong, "\n".join([found.wrong, *found.trace])
    assert found.states > 20_000


@pytest.mark.parametrize("rule", SMALLER, ids=lambda rule: rule.__name__)
def test_no_smaller_order_does(rule: Rule) -> None:
    """Each part of the rule is needed: without it there is a story in which two owners part."""
    found = explore(START, late_records.steps(rule, SMALL), late_records.wrong)

    assert found.wrong
    assert len(found.trace) >= 10, "a shorter story than any there is: the model has changed"
