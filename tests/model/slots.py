"""The slots of a limited queue, as a model of all interleavings.

One slot, two runs that stand in line, two dispatchers. One of the runs sleeps, parked, before it
ends. A dispatcher may die at any moment and is followed by another. Every call is a step.

What must hold: never do two runs go on at once; and when nothing more can happen, both are over
and the slot is free.

`CODE` is what the code does; each of the others leaves out one part of it, and is wrong:
`test_slots` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

RUNS = "ab"
THERE, STALE = 1, -1
SLEEPER = "a"


class Slot(NamedTuple):
    """The object: whose it is."""

    run: str


class Holder(NamedTuple):
    """Who carries a run: what it does next, under which slot; `idle`: nobody does.

    `sleep`: 0 not begun, 1 parked, 2 due.
    """

    at: str = "idle"
    slot: Slot | None = None
    sleep: int = 0
    touched: bool = False


class Dispatcher(NamedTuple):
    """What it does next, for which run, and the slot as it last saw it."""

    at: str = "list"
    run: str = ""
    seen: Slot | None = None
    place: int = 0  # in line, as it saw it


class State(NamedTuple):
    """Everything; holders and places in line in the order of the runs.

    `pending`: 1 while a place is there. Generations are not counted: a change makes stale what
    anybody has seen of an object, so that the states stay few.
    """

    holders: tuple[Holder, ...] = (Holder(), Holder(sleep=2))
    dispatchers: tuple[Dispatcher, ...] = (Dispatcher(), Dispatcher())
    slot: Slot | None = None
    pending: tuple[int, ...] = (1, 1)
    markers: frozenset[str] = frozenset()
    results: frozenset[str] = frozenset()
    deaths: int = 1  # of dispatchers that may still come


class Rule(NamedTuple):
    """What is done; each field is a part that could be left out.

    Attributes:
        name: of the rule.
        stray: what becomes of the slot of a run that has no marker: its holder is woken to give
            it up, or the dispatcher deletes it.
        checks: a worker that took a marker runs nothing unless a slot names the run.
        frees_ended: a dispatcher deletes the slot of a run that is over.
        touches: who stands in line again makes sure that its place was not seen before.

    """

    name: str
    stray: Literal["wake", "delete"] = "wake"
    checks: bool = True
    frees_ended: bool = True
    touches: bool = True


CODE = Rule("code")
SMALLER = [
    Rule("a dispatcher deletes the slot of a live run", stray="delete"),
    Rule("a marker is enough", checks=False),
    Rule("slots of ended runs are their holders'", frees_ended=False),
    Rule("in line by the old place", touches=False),
]

START = State()
DEATHLESS = State(deaths=0)  # dispatchers stall as long as they like; a fifth of the states
Step = tuple[str, State]


def steps(rule: Rule) -> Callable[[State], Iterator[Step]]:
    """What can happen, under a rule."""

    def after(state: State) -> Iterator[Step]:
        for run, holder in zip(RUNS, state.holders, strict=True):
            moved = _carries(rule, state, run, holder)
            if moved is not None and moved != state:
                yield f"{run}: {holder.at}", moved
        if state.holders[0] == Holder(sleep=1):
            yield "the timer of a", _wake(_holder(state, SLEEPER, Holder(sleep=2)), SLEEPER)
        for i, dispatcher in enumerate(state.dispatchers):
            moved = _dispatches(rule, state, i, dispatcher)
            if moved != state:
                yield f"dispatcher {i}: {dispatcher.at} {dispatcher.run}", moved
                if dispatcher.at != "list" and state.deaths:
                    died = state._replace(deaths=state.deaths - 1)
                    yield f"dispatcher {i} dies", _dispatcher(died, i, Dispatcher())

    return after


def _carries(rule: Rule, state: State, run: str, holder: Holder) -> State | None:
    mine = state.slot is not None and state.slot.run == run
    match holder.at:
        case "idle":
            if run not in state.markers:
                return None
            return _holder(state, run, holder._replace(at="admit", touched=False))
        case "admit":
            if run in state.results:
                return _holder(state, run, holder._replace(at="let go"))
            if mine or not rule.checks:
                return _holder(state, run, holder._replace(at="inside", slot=state.slot))
            return _holder(state, run, holder._replace(at="stand"))
        case "stand":
            return _holder(_stands(rule, state, run), run, holder._replace(at="let go"))
        case "inside":
            if holder.sleep < 2:
                return _holder(state, run, holder._replace(at="free", sleep=1))
            ended = state._replace(results=state.results | {run})
            return _holder(ended, run, holder._replace(at="free"))
        case "free":
            left = state if holder.slot is None else _slot(state, None)
            return _holder(left, run, holder._replace(at="let go", slot=None))
        case "let go":
            if holder.touched:
                return _holder(state, run, holder._replace(at="admit", touched=False))
            gone = state._replace(markers=state.markers - {run})
            return _holder(gone, run, holder._replace(at="idle"))
    return None


def _dispatches(rule: Rule, state: State, i: int, dispatcher: Dispatcher) -> State:
    run, seen, place = dispatcher.run, dispatcher.seen, dispatcher.place
    match dispatcher.at:
        case "list":
            return _dispatcher(state, i, _plan(rule, state))
        case "make":
            if state.slot is not None:
                return _dispatcher(state, i, Dispatcher())
            slot = Slot(run)
            return _dispatcher(_slot(state, slot), i, Dispatcher("look again", run, slot, place))
        case "look again":
            then = "delete" if run in state.results else "wake"
            return _dispatcher(state, i, Dispatcher(then, run, seen, place))
        case "delete":
            left = state if seen is None else _slot(state, None)
            return _dispatcher(left, i, Dispatcher())
        case "wake":
            after = Dispatcher("out of line", run, place=place) if place else Dispatcher()
            return _dispatcher(_wake(state, run), i, after)
        case "out of line":
            return _dispatcher(_out_of_line(state, dispatcher), i, Dispatcher())
    return state


def _plan(rule: Rule, state: State) -> Dispatcher:
    """By one list of the line and one of the slots."""
    slot = state.slot
    waiting = {run: at for run, at in zip(RUNS, state.pending, strict=True) if at == THERE}
    for run, place in waiting.items():
        if run in state.results:
            return Dispatcher("out of line", run, place=place)
        if slot is None:
            return Dispatcher("make", run, place=place)
        if slot.run == run:
            return Dispatcher("wake", run, place=place)
    if slot is not None and slot.run not in waiting:
        if slot.run in state.results:
            return Dispatcher("delete", "", slot) if rule.frees_ended else Dispatcher()
        if slot.run not in state.markers:
            return Dispatcher(rule.stray, slot.run, slot)
    return Dispatcher()


def _stands(rule: Rule, state: State, run: str) -> State:
    place = state.pending[RUNS.index(run)]
    if place == THERE and not rule.touches:
        return state
    return _place(state, run, THERE)


def _out_of_line(state: State, dispatcher: Dispatcher) -> State:
    place = state.pending[RUNS.index(dispatcher.run)]
    return _place(state, dispatcher.run, 0) if place == dispatcher.place else state


def _place(state: State, run: str, place: int) -> State:
    """Changed: whoever has seen it as it was has not seen this."""
    at = RUNS.index(run)
    seen = tuple(d._replace(place=STALE) if d.run == run else d for d in state.dispatchers)
    there = (*state.pending[:at], place, *state.pending[at + 1 :])
    return state._replace(pending=there, dispatchers=seen)


def _slot(state: State, slot: Slot | None) -> State:
    """Changed: whoever relied on it as it was, or saw it, does not mean this."""
    holders = tuple(h._replace(slot=None) for h in state.holders)
    seen = tuple(d._replace(seen=None) for d in state.dispatchers)
    return state._replace(slot=slot, holders=holders, dispatchers=seen)


def _wake(state: State, run: str) -> State:
    holder = state.holders[RUNS.index(run)]
    woken = state._replace(markers=state.markers | {run})
    return _holder(woken, run, holder._replace(touched=holder.at != "idle"))


def _holder(state: State, run: str, holder: Holder) -> State:
    at = RUNS.index(run)
    return state._replace(holders=(*state.holders[:at], holder, *state.holders[at + 1 :]))


def _dispatcher(state: State, i: int, dispatcher: Dispatcher) -> State:
    there = list(state.dispatchers)
    there[i] = dispatcher
    return state._replace(dispatchers=tuple(there))


def wrong(rule: Rule) -> Callable[[State], str]:
    """What is wrong with a state."""
    after = steps(rule)

    def found(state: State) -> str:
        if all(holder.at == "inside" for holder in state.holders):
            return "both go on at once"
        if not any(after(state)):
            if len(state.results) < len(RUNS):
                return "a run waits for ever"
            if state.slot is not None:
                return "the slot is never free again"
        return ""

    return found
