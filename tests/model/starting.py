"""How a run starts, as a model: clients make marker and `start` at once, a worker comes between.

Two clients start one id. Each sends the marker and `start` side by side, so either may be there
first, and either client may die in between. A worker takes the marker, makes sure that `start` is
there, and runs; the run parks once, or ends at once.

What must hold (P3, P4): what runs is what `start` says; no two owners have one epoch; and once a
client was told that the run has started, it is over, or parked, or there is a marker that brings
a worker to it.

`CODE` is what the code does; each of the others leaves out one part of it, and is wrong:
`test_starting` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from tests.model.bucket import (
    Call,
    Faults,
    Process,
    State,
    World,
    choose,
    create,
    delete,
    get,
    listed,
    note,
    replace,
)


class Rule(NamedTuple):
    """What is done; each field is a part that could be left out.

    Attributes:
        name: of the rule.
        reads_start: a worker runs what `start` says, not what its marker asks for.
        lists: an empty folder says that no epoch was before, not a marker that looks new.
        leaves_marker: who started the id with other input leaves the marker that it made.
    """

    name: str
    reads_start: bool = True
    lists: bool = True
    leaves_marker: bool = True


CODE = Rule("code")


class Place(NamedTuple):
    """A small world: what the clients want, whether the run parks, what goes wrong for whom."""

    inputs: str
    parks: bool
    faults: Faults
    faulty: str | None = None


PLACES = [
    Place("AB", parks=False, faults=Faults(deaths=1)),
    Place("AA", parks=False, faults=Faults(late=1), faulty="c0"),
    Place("A", parks=True, faults=Faults(deaths=1, lost=1, late=1)),
]
SMALLER = [
    (Rule("run as the marker asks", reads_start=False), PLACES[0]),
    (Rule("a refused client takes its marker away", leaves_marker=False), PLACES[0]),
    (Rule("a new marker is a new run", lists=False), Place("A", parks=True, faults=Faults(lost=1))),
]

# A marker: holder, instance, input, nonce. `start`: instance, input, nonce.


def _client(rule: Rule, me: str, wants: str) -> Process:
    def process() -> Generator[Call, Any, None]:
        instance, marker, start = f"i{me}", None, None
        first = yield choose("marker first", "start first")
        for what in ("marker", "start") if first == "marker first" else ("start", "marker"):
            if what == "marker":
                marker = yield from create("live", "", instance, wants, f"m{me}")
            else:
                start = yield from create("start", instance, wants, f"s{me}")
        if start.value[1] == wants:
            yield note("told", me)
        elif not rule.leaves_marker and marker.value[3] == f"m{me}":
            yield from delete("live", marker.generation)

    return process


def _worker(rule: Rule, parks: bool) -> Process:
    def process() -> Generator[Call, Any, None]:
        for turn in (1, 2):
            there = yield get("live")
            if there is None or there.value[0]:
                continue
            _, instance, wants, _ = there.value
            nonce = f"w{turn}"
            held = yield from replace("live", there.generation, "w", instance, wants, nonce)
            if held is None:
                continue
            start = yield from create("start", instance, wants, nonce)
            if rule.reads_start:
                instance, wants, _ = start.value
            yield from _runs(rule, parks, instance, wants, nonce)
            yield from delete("live", held.generation)

    return process


def _runs(
    rule: Rule, parks: bool, instance: str, wants: str, nonce: str
) -> Generator[Call, Any, None]:
    there = yield listed(f"{instance}/")
    if f"{instance}/result" in there:
        return
    epoch = 1
    if there and rule.lists:
        epoch = 2
        while (yield from create(f"{instance}/epoch{epoch}", nonce)).value != (nonce,):
            epoch += 1
    yield note("owns", instance, wants, epoch, nonce)
    yield from create(f"{instance}/{'wait' if parks and epoch == 1 else 'result'}", nonce)


def world(rule: Rule, place: Place) -> World:
    clients = {f"c{i}": _client(rule, f"{i}", wants) for i, wants in enumerate(place.inputs)}
    return World(clients | {"w": _worker(rule, place.parks)}, {}, place.faults, faulty=place.faulty)


def wrong(world: World) -> Callable[[State], str]:
    """What is wrong with a state."""

    def found(state: State) -> str:
        start, epochs = state.there("start"), dict[Any, Any]()
        for note_ in state.notes:
            if note_[0] == "owns":
                _, instance, wants, epoch, owner = note_
                if start is None or (instance, wants) != start[:2]:
                    return f"{instance} runs with {wants}, and `start` says {start}"
                if epochs.setdefault((instance, epoch), owner) != owner:
                    return f"{owner} and {epochs[instance, epoch]} own epoch {epoch}"
        if state.is_quiet() and any(n[0] == "told" for n in state.notes):
            return _is_lost(world, state)
        return ""

    return found


def _is_lost(world: World, state: State) -> str:
    start, marker = state.there("start"), state.there("live")
    if start is None:
        return "a client was told of a start that is not there"
    if any(state.there(f"{start[0]}/{end}") for end in ("wait", "result")):
        return ""
    if marker is None:
        return "the run is lost: it has no outcome and no marker"
    if marker[0] and world.over(state, marker[0]) == "ended":
        return f"the run is stuck: {marker[0]}, which lives, holds it and does not run it"
    return ""
