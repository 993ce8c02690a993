"""Bells, as a model: who makes work rings, and who answers a bell lists what there is to do.

Clients make markers and ring the queue's bell. A worker that finds the bell deletes it by its
generation, lists, and takes what it has room for. What nobody was told of waits for a slow list,
so in the end no marker may be unowned while the bell is silent.

`CODE` is what the code does; each of the others leaves out one part of it, and is wrong:
`test_bells` shows it. A worker may also die between its delete and its list: what it had been told
then waits for the slow list, which is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from tests.model.bucket import Call, Faults, Process, State, World, get, listed

LOOKS = 2  # of each worker; afterwards somebody else would


class Rule(NamedTuple):
    """What is done; each field is a part that could be left out.

    Attributes:
        name: of the rule.
        marker_first: a client rings once its marker is there, not before.
        lists_all: who answers the bell lists the whole queue, not its share of it.
        rings_again: who has to leave something rings again; who has no room leaves the bell.
    """

    name: str
    marker_first: bool = True
    lists_all: bool = True
    rings_again: bool = True


CODE = Rule("code")


class Place(NamedTuple):
    """A small world: the runs that are started, and how many of them a worker has room for."""

    runs: str
    room: int
    faults: Faults = Faults()


PLACES = [Place("ab", room=1), Place("a", room=9), Place("ab", room=9)]
DEADLY = Place("a", room=9, faults=Faults(deaths=1))
SMALLER = [
    (Rule("rung before there is work", marker_first=False), PLACES[1]),
    (Rule("answered by a list of one's share", lists_all=False), PLACES[2]),
    (Rule("left without a ring", rings_again=False), PLACES[0]),
]

Going = Generator[Call, Any, Any]


def _client(rule: Rule, run: str) -> Process:
    def process() -> Going:
        # What rings already is as good, so nobody reads back.
        ring, marker = Call("create", "bell", (run,)), Call("create", f"live/{run}", ("",))
        first, second = (marker, ring) if rule.marker_first else (ring, marker)
        yield first
        yield second

    return process


def _worker(rule: Rule, me: str, share: str, room: int) -> Process:
    def process() -> Going:
        left = room
        for _ in range(LOOKS):
            bell = yield get("bell")
            if bell is None or (rule.rings_again and not left):
                continue
            yield Call("delete", "bell", generation=bell.generation)
            unowned = yield from _unowned("live/" if rule.lists_all else f"live/{share}")
            taking = unowned[:left]
            for name, generation in taking:
                answer = yield Call("replace", name, (me,), generation)
                left -= answer > 0
            if len(taking) < len(unowned) and rule.rings_again:
                yield Call("create", "bell", (me,))

    return process


def _unowned(prefix: str) -> Going:
    found = []
    for name in (yield listed(prefix)):
        there = yield get(name)
        if there.value == ("",):
            found.append((name, there.generation))
    return found


def world(rule: Rule, place: Place) -> World:
    clients = {f"c{run}": _client(rule, run) for run in place.runs}
    workers = {f"w{share}": _worker(rule, f"w{share}", share, place.room) for share in place.runs}
    return World(clients | workers, {}, place.faults, faulty="wa")


def wrong(_: World) -> Callable[[State], str]:
    """What is wrong with a state."""

    def found(state: State) -> str:
        if not state.is_quiet() or state.there("bell") is not None:
            return ""
        unowned = [
            name for name, there in state.objects
            if name.startswith("live/") and there.value == ("",)
        ]  # fmt: skip
        return f"{unowned[0]} waits for a slow list" if unowned else ""

    return found
