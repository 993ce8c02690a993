"""The rules of a singleton's lock, over every interleaving of a small world; see singletons.py."""

from __future__ import annotations

import pytest

from tests.model import singletons
from tests.model.exploring import explore
from tests.model.singletons import CODE, SMALLER, START, Rule


def test_one_at_a_time_and_nobody_waits_for_ever() -> None:
    """However owners die, and a run is restarted or purged."""
    found = explore(START, singletons.steps(CODE), singletons.wrong(CODE))

    assert not found.wrong, "\n".join([found.wrong, *found.trace])
    assert found.states > 1_000


@pytest.mark.parametrize("rule", SMALLER, ids=lambda rule: rule.name)
def test_no_part_of_it_can_be_left_out(rule: Rule) -> None:
    """Without any one there is a story in which two go on at once, or one waits for ever."""
    found = explore(START, singletons.steps(rule), singletons.wrong(rule))

    assert found.wrong
