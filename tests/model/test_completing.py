"""The rules of ends, over every interleaving of small worlds; see completing.py."""

from __future__ import annotations

import pytest

from tests.model import completing
from tests.model.completing import CODE, PLACES, SMALLER, Place, Rule
from tests.model.exploring import Explored, explore


def _explored(rule: Rule, place: Place) -> Explored[object]:
    world = completing.world(rule, place)
    return explore(world.start, world.steps, completing.wrong(world))


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_end_is_one_and_is_heard_of(place: Place) -> None:
    """Whoever executes it beside, cancels it, waits for it or wakes it too late."""
    found = _explored(CODE, place)

    assert not found.wrong, "\n".join([found.wrong, *found.trace])
    assert found.states > 1_000


@pytest.mark.parametrize(("rule", "place"), SMALLER, ids=lambda part: getattr(part, "name", ""))
def test_no_part_of_it_can_be_left_out(rule: Rule, place: Place) -> None:
    """Without any one there is a story of two histories, or of one that nobody hears of."""
    found = _explored(rule, place)

    assert found.wrong
