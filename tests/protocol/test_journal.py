"""The order in which recorded outcomes are handed over again."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from durable.protocol.failures import from_exception
from durable.protocol.journal import Suspicion, build, seen, suspicion
from durable.protocol.records import Attempt, Epoch, Seen, Step


def step(path: str, epoch: int, n: int) -> Step:
    return Step(path, "s", "value", epoch, n, nonce=f"{epoch}-{n}", time=0.0)


def claim(number: int, listed: list[Step], why: str = "takeover", *, alone: bool = False) -> Epoch:
    return Epoch(number, "w", "", why, f"e{number}", 0.0, seen=seen(listed), alone=alone)  # type: ignore[arg-type]  # `why` is a plain str here


def order(steps: list[Step], epochs: list[Epoch]) -> list[str]:
    return [s.path for s in build(steps, [], epochs).order]


def test_one_owner() -> None:
    """One owner's records come in the order of their numbers, whatever the list's order."""
    assert order([step("c", 1, 3), step("a", 1, 1), step("b", 1, 2)], []) == ["a", "b", "c"]


def test_owners_in_turn() -> None:
    """A later owner's records come behind those that it found."""
    first = [step("a", 1, 1), step("b", 1, 2)]
    both = [*first, step("c", 2, 1)]

    assert order(both, [claim(2, first)]) == ["a", "b", "c"]
    assert order(both, [claim(2, first), claim(3, both)]) == ["a", "b", "c"]


def test_record_in_a_hole() -> None:
    """A record that landed late comes behind those of the owner whose list missed it."""
    listed = [step("b", 1, 2)]  # a, number 1, was still under way
    later = [*listed, step("a", 1, 1), step("c", 2, 1)]

    assert seen(listed) == {"1": Seen(2, [1])}
    assert order(later, [claim(2, listed)]) == ["b", "c", "a"]


def test_record_above_the_highest() -> None:
    """So does one whose number is above all that the list held, or whose epoch it did not name."""
    listed = [step("a", 1, 1)]
    late = [*listed, step("b", 1, 2), step("c", 2, 1)]

    assert order(late, [claim(2, listed)]) == ["a", "c", "b"]
    assert order([step("b", 1, 1), step("c", 2, 1)], [claim(2, [])]) == ["c", "b"]


def test_late_records_of_two_dead_owners() -> None:
    """Of records first seen by one list, the youngest owner's come first."""
    records = [step("a", 1, 1), step("b", 2, 1), step("c", 3, 1)]
    claims = [claim(2, []), claim(3, [])]

    assert order(records, claims) == ["c", "b", "a"]
    # Once a list has seen all three, their order is settled.
    claims.append(claim(4, records))
    assert order([*records, step("d", 4, 1)], claims) == ["c", "b", "a", "d"]


@st.composite
def lines(draw: st.DrawFn) -> list[tuple[list[Step], list[Step]]]:
    """Owners that follow each other: what each found in its list, and what it recorded seen."""
    owners = draw(st.integers(2, 5))
    landed: list[Step] = []
    under_way: list[Step] = []
    line = []
    for epoch in range(1, owners + 1):
        for late in draw(st.permutations(under_way)):
            if draw(st.booleans()):
                under_way.remove(late)
                landed.append(late)
        listed = list(landed)
        count = draw(st.integers(0, 4))
        mine = [step(f"{epoch}.{n}", epoch, n) for n in range(1, count + 1)]
        known = draw(st.integers(0, count))  # handed over: all numbers up to this one
        for record in mine:
            (landed if record.n <= known or draw(st.booleans()) else under_way).append(record)
        line.append((listed, mine[:known]))
    return line


@given(lines())
def test_every_owner_repeats_what_the_earlier_saw(
    line: list[tuple[list[Step], list[Step]]],
) -> None:
    """What one owner handed over begins what every later one hands over."""
    claims: list[Epoch] = []
    handed_over = []
    for number, (listed, mine) in enumerate(line, 1):
        recorded = order(listed, claims)
        handed_over.append(recorded + [s.path for s in mine])
        if number > 1:
            claims.append(claim(number, listed))

    for before, after in pairwise(handed_over):
        assert after[: len(before)] == before


def test_last_attempt() -> None:
    """Of a call's failed attempts the last one counts."""
    failure = from_exception(ValueError("x"))
    attempts = [Attempt("s.1", n, failure, 0.0, f"a{n}", 0.0) for n in (10, 2, 1)]

    assert build([], attempts, []).attempts["s.1"].attempt == 10


# -- crash loops ---------------------------------------------------------------------------------


def suspected(claims: list[Epoch], recorded: set[int]) -> Suspicion:
    return suspicion({c.epoch: c for c in claims}, recorded)


def test_first_takeover_is_innocent() -> None:
    """A run that was never taken over without a new record is not suspicious."""
    assert suspected([], {1}) == Suspicion(alone=False, solitary_deaths=0)


def test_takeovers_without_a_record() -> None:
    """After one such takeover the run is resumed alone; only deaths alone count."""
    claims = [claim(2, []), claim(3, [], alone=True), claim(4, [], alone=True)]

    assert suspected(claims[:1], {1}) == Suspicion(alone=True, solitary_deaths=0)
    assert suspected(claims, {1}) == Suspicion(alone=True, solitary_deaths=2)


def test_a_record_clears_the_run() -> None:
    """A record of an epoch, or a wake, ends the count."""
    claims = [claim(2, [], alone=True), claim(3, [], alone=True)]

    assert suspected(claims, {1, 3}) == Suspicion(alone=False, solitary_deaths=0)
    assert suspected([claims[0], claim(3, [], "wake")], {1}) == Suspicion(False, 0)
