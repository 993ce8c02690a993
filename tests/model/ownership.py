"""Who owns a run, as a model: leases, fences, takes and epochs, beside an owner that is a zombie.

Two worlds. In `TAKEOVER` the first worker owns the run, and may have stalled anywhere: to the
others its lease looks as if it had run out. They fence it, take the marker, claim an epoch and
finish the run, while it goes on as if nothing had happened; somebody else touches the marker
meanwhile. In `FRESH` one worker takes a run that nobody holds, and another looks for runs whose
holder has no lease.

What must hold: no two owners have one epoch, and what a fenced owner publishes is not read any
more (P3); all see one value of a step (P1); nothing is taken from a worker that believes it holds
it (P11); and in the end the run is over, and its marker gone.

`CODE` is what the code does; each of the others leaves out one part of it, and is wrong:
`test_ownership` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

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
    listed,
    note,
    replace,
)


class Rule(NamedTuple):
    """What is done; each field is a part that could be left out.

    Attributes:
        name: of the rule.
        by_token: a take is known by its owner token, though somebody has touched the marker since.
        asks_on: a take whose answer was lost is repeated until it is known what became of it.
        by_epoch: what a run publishes is an object of its epoch, not one for all.
        held_before: an empty folder is a first epoch only if nobody held the run before.
        lease_first: the lease is acknowledged before a marker is taken.
        marker_first: who looks for the dead reads the marker, and then the lease.
    """

    name: str
    by_token: bool = True
    asks_on: bool = True
    by_epoch: bool = True
    held_before: bool = True
    lease_first: bool = True
    marker_first: bool = True


CODE = Rule("code")
NOTHING = ("nothing",)


class Place(NamedTuple):
    """A small world: who is there, what an owner does, and what goes wrong for w2.

    Attributes:
        fresh: nobody holds the run yet.
    """

    processes: tuple[str, ...]
    does: tuple[str, ...] = ()
    faults: Faults = Faults()
    fresh: bool = False


TOUCHED = Place(("w1", "w2", "touch"), ("result",), Faults(lost=1, late=1))
PUBLISHED = Place(("w1", "w2"), ("step", "publish", "result"), Faults(lost=1, late=1))
SWEPT = Place(("w1", "w2", "w3"), ("result",), Faults(deaths=1))
FRESH = Place(("w4", "w5"), fresh=True)
PLACES = [TOUCHED, PUBLISHED, SWEPT, FRESH]
SMALLER = [
    (Rule("a take is known by its nonce", by_token=False), TOUCHED),
    (Rule("an unanswered take is dropped", asks_on=False), TOUCHED),
    (Rule("one object for all that is published", by_epoch=False), PUBLISHED),
    (Rule("an empty folder is a first epoch", held_before=False), SWEPT),
    (Rule("taken before the lease is known", lease_first=False), FRESH),
    (Rule("leases are read before markers", marker_first=False), FRESH),
]

Going = Generator[Call, Any, Any]

# A marker: holder, nonce. A lease: state, nonce.


class Owner(NamedTuple):
    """A worker under its rule, and what it does."""

    me: str
    rule: Rule
    does: tuple[str, ...]


def _finishes(owner: Owner, epoch: int, generation: int) -> Going:
    """All that an owner does, to the end, as long as the marker names it."""
    me = owner.me
    yield note("owns", epoch, me)
    for what in owner.does:
        if what == "publish":
            name = f"published{epoch}" if owner.rule.by_epoch else "published"
            yield from _publishes(me, name, epoch)
        else:
            there = yield from create(what, me)
            yield note(f"saw {what}", there.value)
    while not (yield from delete("live", generation)):
        there = yield get("live")
        if there is None or there.value[0] != me:
            return
        generation = there.generation


def _publishes(me: str, name: str, epoch: int) -> Going:
    there = yield get(name)
    if there is None:
        yield from create(name, me)
        return
    if epoch > 1:
        yield note("read", there.value)
    yield from replace(name, there.generation, me)


def _owner(owner: Owner) -> Process:
    return lambda: _finishes(owner, 1, 1)


def _sweeper(owner: Owner) -> Process:
    me, rule = owner.me, owner.rule

    def process() -> Going:
        for turn in range(2 if me == "w2" else 1):
            there = yield get("live")
            if there is None or there.value[0] == me:
                return
            if not (yield from _fences(there.value[0], f"{me}{turn}")):
                continue
            held = yield from _takes(rule, me, there, f"{me}{turn}")
            if held is not None:
                epoch = yield from _epoch(rule, me)
                yield from _finishes(owner, epoch, held.generation)
                return

    return process


def _fences(holder: str, nonce: str) -> Going:
    lease = yield get(f"workers/{holder}")
    if lease is None or lease.value[0] == "dead":
        return True
    fenced = yield from replace(f"workers/{holder}", lease.generation, "dead", nonce)
    return fenced is not None


def _takes(rule: Rule, me: str, there: Found, nonce: str) -> Going:
    if rule.asks_on:
        ours = (lambda said: bool(said[0] == me)) if rule.by_token else None
        return (yield from replace("live", there.generation, me, nonce, ours=ours))
    answer = yield Call("replace", "live", (me, nonce), there.generation)
    if answer > 0:
        return Found(answer, (me, nonce))
    now = yield get("live")
    return now if now is not None and now.value[0] == me else None


def _epoch(rule: Rule, me: str) -> Going:
    there = yield listed("")
    if not rule.held_before and not {"step", "result"} & set(there):
        return 1
    epoch = 2
    while (yield from create(f"epoch{epoch}", me)).value != (me,):
        epoch += 1
    return epoch


def _touch() -> Going:
    there = yield get("live")
    if there is not None:
        yield from replace("live", there.generation, there.value[0], "touched")


def _takes_a_fresh_run(rule: Rule) -> Process:
    def process() -> Going:
        if rule.lease_first:
            yield from create("workers/w4", "alive", "w4")
        there = yield get("live")
        if there.value[0]:
            return
        held = yield from replace("live", there.generation, "w4", "taken")
        if not rule.lease_first:
            yield from create("workers/w4", "alive", "w4")
        if held is not None:
            yield note("believes", "w4")

    return process


def _takes_from_the_absent(rule: Rule) -> Process:
    def process() -> Going:
        there, lease = None, None
        for what in ("marker", "lease") if rule.marker_first else ("lease", "marker"):
            if what == "marker":
                there = yield get("live")
            else:
                lease = yield get("workers/w4")
        assert there is not None
        if there.value[0] and lease is None:
            held = yield from replace("live", there.generation, "w5", "taken")
            if held is not None:
                yield note("stole", there.value[0])

    return process


def world(rule: Rule, place: Place) -> World:
    every: dict[str, Process] = {
        "w1": _owner(Owner("w1", rule, place.does)), "w2": _sweeper(Owner("w2", rule, place.does)),
        "w3": _sweeper(Owner("w3", rule, place.does)),
        "touch": _touch, "w4": _takes_a_fresh_run(rule), "w5": _takes_from_the_absent(rule),
    }  # fmt: skip
    there: dict[str, tuple[str, ...]] = {"live": ("", "made")}
    if not place.fresh:
        leases = {f"workers/{w}": ("alive", w) for w in place.processes if w != "touch"}
        there = {"live": ("w1", "taken"), **leases}
    if not rule.by_epoch:
        there["published"] = NOTHING
    processes = {name: every[name] for name in place.processes}
    return World(processes, there, place.faults, faulty="w2")


def wrong(world: World) -> Callable[[State], str]:
    """What is wrong with a state."""

    def found(state: State) -> str:
        owners: dict[int, str] = {}
        for kind, *fact in state.notes:
            if kind == "owns" and owners.setdefault(fact[0], fact[1]) != fact[1]:
                return f"{owners[fact[0]]} and {fact[1]} own epoch {fact[0]}"
            name = kind.removeprefix("saw ")
            if name != kind and state.there(name) != fact[0]:
                return f"an owner saw {fact[0]}, the {name} is {state.there(name)}"
            if kind == "stole" and ("believes", fact[0]) in state.notes:
                return f"taken from {fact[0]}, which lives and believes that it holds the run"
        if _is_changed_behind(state):
            return "what the fenced w1 published took the place of what its successor had read"
        over = state.there("result") and state.there("live") is None
        quiet = state.is_quiet() and state.there("workers/w1") is not None
        return _is_stuck(world, state) if quiet and not over else ""

    return found


def _is_changed_behind(state: State) -> bool:
    """The one object for all says w1, after an owner of a later epoch had read it."""
    return ("read", NOTHING) in state.notes and state.there("published") == ("w1",)


def _is_stuck(world: World, state: State) -> str:
    marker = state.there("live")
    if marker is None:
        return "the run is lost: it has no outcome and no marker"
    lease = state.there(f"workers/{marker[0]}")
    if world.over(state, marker[0]) == "ended" and lease is not None and lease[0] == "alive":
        return f"the run is stuck: {marker[0]}, which lives, holds it and does not run it"
    return ""
