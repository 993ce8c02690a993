"""The rules of bells, over every interleaving of small worlds; see bells.py."""

from __future__ import annotations

import pytest

from tests.model import bells
from tests.model.bells import CODE, DEADLY, PLACES, SMALLER, Place, Rule
from tests.model.exploring import Explored, explore


def _explored(rule: Rule, place: Place) -> Explored[object]:
    world = bells.world(rule, place)
    return explore(world.start, world.steps, bells.wrong(world))


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_work_is_heard_of(place: Place) -> None:
    """While nobody dies, no marker is left unowned beside a silent bell."""
    found = _explored(CODE, place)

    assert not found.wrong, "\n".join([found.wrong, *found.trace])
    assert found.states > 15


@pytest.mark.parametrize(("rule", "place"), SMALLER, ids=lambda part: getattr(part, "name", ""))
def test_no_part_of_it_can_be_left_out(rule: Rule, place: Place) -> None:
    """Without any one there is a story in which work waits for a slow list."""
    found = _explored(rule, place)

    assert found.wrong


def test_who_dies_after_answering_a_bell_leaves_work_to_slow_lists() -> None:
    """Which is why there are slow lists."""
    found = _explored(CODE, DEADLY)

    assert found.wrong == "live/a waits for a slow list"
    assert "wa dies" in found.trace
