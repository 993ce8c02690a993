"""The rules of a start, over every interleaving of small worlds; see starting.py."""

from __future__ import annotations

import pytest

from tests.model import starting
from tests.model.exploring import Explored, explore
from tests.model.starting import CODE, PLACES, SMALLER, Place, Rule


def _explored(rule: Rule, place: Place) -> Explored[object]:
    world = starting.world(rule, place)
    return explore(world.start, world.steps, starting.wrong(world))


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_accepted_is_kept(place: Place) -> None:
    """What `start` says runs, once, whoever dies and whatever lands late."""
    found = _explored(CODE, place)

    assert not found.wrong, "\n".join([found.wrong, *found.trace])
    assert found.states > 1_000


@pytest.mark.parametrize(("rule", "place"), SMALLER, ids=lambda part: getattr(part, "name", ""))
def test_no_part_of_it_can_be_left_out(rule: Rule, place: Place) -> None:
    """Without any one there is a story in which a run is lost, or is not what was asked for."""
    found = _explored(rule, place)

    assert found.wrong
