"""The rules of owners and epochs, over every interleaving of small worlds; see ownership.py."""

from __future__ import annotations

import pytest

from tests.model import ownership
from tests.model.exploring import Explored, explore
from tests.model.ownership import CODE, PLACES, SMALLER, Place, Rule


def _explored(rule: Rule, place: Place) -> Explored[object]:
    world = ownership.world(rule, place)
    return explore(world.start, world.steps, ownership.wrong(world))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "+".join(place.processes))
def test_one_owner_at_a_time_and_none_too_few(place: Place) -> None:
    """Beside a zombie, and whatever of a take is lost or late."""
    found = _explored(CODE, place)

    assert not found.wrong, "\n".join([found.wrong, *found.trace])
    assert found.states > (10 if place.fresh else 1_000)


@pytest.mark.parametrize(("rule", "place"), SMALLER, ids=lambda part: getattr(part, "name", ""))
def test_no_part_of_it_can_be_left_out(rule: Rule, place: Place) -> None:
    """Without any one there is a story in which two own a run, or nobody goes on with it."""
    found = _explored(rule, place)

    assert found.wrong
