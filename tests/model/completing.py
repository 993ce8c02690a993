"""How a run ends, as a model: by cancellation, beside a zombie; with a parent that waits; for good.

Three worlds. `CANCELLED`: an owner, and a zombie that is still in the body of a call, while
somebody cancels the run; whoever sees the cancellation at that call undoes what was done before
it. `CHILD`: a child ends and may die at that, somebody else does what it still owes,
and its parent parks meanwhile. `STALE`: a wake-up lands after the end, and a worker takes it.

What must hold: all executions see one outcome of the call, and the record of what was undone is of
that history (P1); a parent is not left asleep, and a run that is over is in the history; what is
over is not executed again (P2).

`CODE` is what the code does; each of the others leaves out one part of it, and is wrong:
`test_completing` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Literal, NamedTuple

from tests.model.bucket import (
    Call,
    Faults,
    Found,
    Process,
    State,
    World,
    create,
    delete,
    get,
    note,
    replace,
)


class Rule(NamedTuple):
    """What is done; each field is a part that could be left out.

    Attributes:
        name: of the rule.
        claims: a cancellation is claimed as the outcome of the call at which it is raised.
        marker_last: an ended run's marker goes after all that it owes.
        looks_again: a parent that finds its marker touched looks at its child again.
        reads_first: who takes a marker reads whether the run is over before it begins.
    """

    name: str
    claims: bool = True
    marker_last: bool = True
    looks_again: bool = True
    reads_first: bool = True


CODE = Rule("code")


class Place(NamedTuple):
    """A small world, and what goes wrong in it."""

    kind: Literal["cancelled", "child", "stale"]
    faults: Faults
    faulty: str | None = None


CANCELLED = Place("cancelled", Faults(lost=1, late=1), faulty="zombie")
CHILD = Place("child", Faults(deaths=1, lost=1), faulty="child")
STALE = Place("stale", Faults(lost=1, late=1))
PLACES = [CANCELLED, CHILD, STALE]
SMALLER = [
    (Rule("a cancellation raised without a claim", claims=False), Place("cancelled", Faults())),
    (Rule("the marker goes before the parent is woken", marker_last=False), CHILD),
    (Rule("a parent parks without a second look", looks_again=False), CHILD),
    (Rule("begun without a look at the result", reads_first=False), STALE),
]

Going = Generator[Call, Any, Any]

# -- cancellation ----------------------------------------------------------------------------------


def _executes(rule: Rule, me: str, *, in_the_body: bool) -> Process:
    """One execution from the top; the zombie has been in the body of the call for long."""

    def process() -> Going:
        outcome = yield from _outcome(rule, me, in_the_body)
        yield note("outcome", outcome)
        cancelled = outcome == "cancelled" or (yield get("cancel")) is not None
        if cancelled:
            undone = "before" if outcome == "cancelled" else "call, before"
            there = yield from create("undone", undone)
            yield note("undone", undone, there.value[0])
        yield from create("result", "cancelled" if cancelled else "completed")

    return process


def _outcome(rule: Rule, me: str, in_the_body: bool) -> Going:
    if not in_the_body:
        recorded = yield get("call")
        if recorded is not None:
            return recorded.value[0]
        if (yield get("cancel")) is not None:
            if not rule.claims:
                return "cancelled"
            return (yield from create("call", "cancelled", me)).value[0]
    return (yield from create("call", "value", me)).value[0]


def _cancels() -> Going:
    yield from create("cancel", "asked")


# -- the end of a child ----------------------------------------------------------------------------


def _ends(rule: Rule, me: str, generation: int) -> Going:
    """All that an ended run owes, in order; whoever takes its marker does it again."""
    yield from create("result", "completed")
    if not rule.marker_last:
        yield from delete("live/child", generation)
    yield from create("history", "entry")
    yield from _wakes("live/parent", me)
    if rule.marker_last:
        yield from delete("live/child", generation)


def _wakes(marker: str, me: str) -> Going:
    """Make a marker, or touch the one that is there."""
    while True:
        there = yield from create(marker, "", f"{me} wakes")
        if there.value[1] == f"{me} wakes":
            return
        touched = yield from replace(marker, there.generation, there.value[0], f"{me} touches")
        if touched is not None or (yield get(marker)) is not None:
            return


def _child(rule: Rule) -> Process:
    return lambda: _ends(rule, "child", 1)


def _repairs(rule: Rule) -> Process:
    """A worker for which the child's owner is dead."""

    def process() -> Going:
        held = yield from _takes("live/child", "repair")
        if held is not None:
            yield from _ends(rule, "repair", held.generation)

    return process


def _takes(marker: str, me: str) -> Going:
    there = yield get(marker)
    if there is None:
        return None
    return (yield from replace(marker, there.generation, me, f"{me} takes"))


def _parent(rule: Rule) -> Process:
    """It waits for its child: looks, and lets its marker go by the generation it knew before."""

    def process() -> Going:
        generation = 1
        while True:
            if (yield get("result")) is not None:
                yield from create("parent's result", "completed")
            if (yield from delete("live/parent", generation)):
                return
            there = yield get("live/parent")
            if there is None or there.value[0] != "parent":
                return
            generation = there.generation
            if not rule.looks_again:
                yield from delete("live/parent", generation)
                return

    return process


# -- a wake-up after the end -----------------------------------------------------------------------


def _stale_wake() -> Going:
    yield from create("live/child", "", "late wake")


def _takes_it(rule: Rule) -> Process:
    def process() -> Going:
        for _ in range(2):
            there: Found | None = yield get("live/child")
            if there is None or there.value is None or there.value[0] == "child":
                continue
            held = yield from _takes("live/child", "taker")
            if held is None:
                continue
            if not rule.reads_first or (yield get("result")) is None:
                yield note("executes")
            yield from delete("live/child", held.generation)

    return process


def world(rule: Rule, place: Place) -> World:
    child, parent = ("child", "held"), ("parent", "held")
    kinds: dict[str, tuple[dict[str, Process], dict[str, tuple[str, ...]]]] = {
        "cancelled": (
            {
                "zombie": _executes(rule, "zombie", in_the_body=True),
                "second": _executes(rule, "second", in_the_body=False),
                "user": _cancels,
            },
            {},
        ),
        "child": (
            {"child": _child(rule), "repair": _repairs(rule), "parent": _parent(rule)},
            {"live/child": child, "live/parent": parent},
        ),
        "stale": (
            {"child": _child(rule), "wake": _stale_wake, "taker": _takes_it(rule)},
            {"live/child": child},
        ),
    }
    processes, there = kinds[place.kind]
    return World(processes, there, place.faults, faulty=place.faulty)


def wrong(world: World) -> Callable[[State], str]:
    """What is wrong with a state."""

    def found(state: State) -> str:
        outcomes = sorted(note_[1] for note_ in state.notes if note_[0] == "outcome")
        if len(set(outcomes)) > 1:
            return f"one execution saw {outcomes[0]}, another {outcomes[-1]}"
        for note_ in state.notes:
            if note_[0] == "undone" and note_[1] != note_[2]:
                return f"undone was {note_[2]}, an execution had done {note_[1]}"
        if ("executes",) in state.notes:
            return "a run that is over was executed again"
        ends = "child" in world.names
        return _is_forgotten(state) if ends and state.is_quiet() else ""

    return found


def _is_forgotten(state: State) -> str:
    """What nobody would come back to."""
    if state.there("result") is None or state.there("live/child") is not None:
        return ""
    if state.there("history") is None:
        return "a run that is over is not in the history"
    if state.there("live/parent") is None and state.there("parent's result") is None:
        return "the child is over, and its parent sleeps for ever"
    return ""
