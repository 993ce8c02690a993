"""The lock of a singleton, as a model of all interleavings.

Two runs want one lock. Each has an owner that may die at any moment and is followed by another.
One run may be restarted under its id once it is over, or purged by force while it goes on. Every
call of the store is a step of its own.

What must hold: of the instances that `start` names, no two go on at once; and when nothing more
can happen, nobody is left waiting.

`CODE` is what the code does; each of the others leaves out one part of it, and is wrong:
`test_singleton_locks` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from durable.protocol import singletons
from durable.protocol.records import LockRecord

GONE = "purged"


class Me(NamedTuple):
    """An instance of a run."""

    run: str
    instance: str

    def __str__(self) -> str:
        return f"{self.run}/{self.instance}"


R1, R2, Q1 = Me("r", "1"), Me("r", "2"), Me("q", "1")


class Lock(NamedTuple):
    """The register: whom it names, and how often it was written."""

    holder: Me
    generation: int


class Owner(NamedTuple):
    """Of an instance, and what it is about to do.

    Attributes:
        at: the next call; `away` before the instance is made, `gone` after all.
        lock: as it was read.
        lined: it stands in line, and has not looked since before that.
        touched: its run was woken since its marker was taken.
    """

    at: str
    lock: Lock | None = None
    lined: bool = False
    touched: bool = False


class State(NamedTuple):
    """Everything. `owners` in the order R1, R2, Q1; `starts` what `start` of r and q names."""

    owners: tuple[Owner, ...]
    starts: tuple[str, str] = ("1", "1")
    lock: Lock | None = None
    results: frozenset[Me] = frozenset()
    waiters: frozenset[Me] = frozenset()
    deaths: int = 0
    purging: str = ""  # what a purge does next


class Rule(NamedTuple):
    """What is done; each field is a part that could be left out.

    Attributes:
        name: of the rule.
        by_instance: a lock is adopted only if it names the instance, not just the run.
        start_frees: a lock is free, too, if `start` does not name its instance.
        looks_again: who stands in line looks at the lock once more before it parks.
        result_first: the waiters are woken after the result is recorded, not before.
    """

    name: str
    by_instance: bool = True
    start_frees: bool = True
    looks_again: bool = True
    result_first: bool = True


CODE = Rule("code")
SMALLER = [
    Rule("adopted by the run's id", by_instance=False),
    Rule("freed by a result alone", start_frees=False),
    Rule("in line after the last look", looks_again=False),
    Rule("woken before the result", result_first=False),
]

INSTANCES = (R1, R2, Q1)
DEATHS_MAX = 2
START = State((Owner("look"), Owner("away"), Owner("look")))

Step = tuple[str, State]


def steps(rule: Rule) -> Callable[[State], Iterator[Step]]:
    """What can happen, under a rule."""

    def after(state: State) -> Iterator[Step]:
        for me, owner in zip(INSTANCES, state.owners, strict=True):
            moved = _goes_on(rule, state, me, owner)
            if moved is not None:
                yield f"{me}: {owner.at}", moved
                if state.deaths < DEATHS_MAX and owner.at != "parked":
                    died = state._replace(deaths=state.deaths + 1)
                    yield f"the owner of {me} dies", _with(died, me, Owner("look"))
        yield from _operators(state)

    return after


def _goes_on(rule: Rule, state: State, me: Me, owner: Owner) -> State | None:
    """One call of the owner; None: it has nothing to do."""
    match owner.at:
        case "look":
            if me in state.results:
                return _with(state, me, Owner("wake"))
            if not _is_named(state, me):
                return _with(state, me, Owner("gone"))
            return _with(state, me, owner._replace(at="judge", lock=state.lock))
        case "judge":
            return _judges(rule, state, me, owner)
        case "take":
            if state.lock != owner.lock:
                return _with(state, me, owner._replace(at="look"))
            written = 1 if state.lock is None else state.lock.generation + 1
            return _with(state._replace(lock=Lock(me, written)), me, Owner("inside"))
        case "stand":
            lined = owner._replace(at="look" if rule.looks_again else "park", lined=True)
            return _with(state._replace(waiters=state.waiters | {me}), me, lined)
        case "park":
            return _with(state, me, Owner("look" if owner.touched else "parked"))
        case "parked":
            return _with(state, me, Owner("look")) if owner.touched else None
        case "inside":
            if rule.result_first:
                return _ended(state, me, "wake")
            return _with(_woken(state, me), me, Owner("end"))
        case "end":
            return _ended(state, me, "gone")
        case "wake":
            return _with(_woken(state, me), me, Owner("gone"))
    return None


def _judges(rule: Rule, state: State, me: Me, owner: Owner) -> State:
    """Of the lock as it was read, and of the facts as they are now."""
    lock = owner.lock
    if lock is not None and _is_ours(rule, lock, me):
        return _with(state, me, Owner("inside"))
    over = lock is None or lock.holder in state.results
    if lock is not None and rule.start_frees and not _is_named(state, lock.holder):
        over = True
    return _with(state, me, owner._replace(at="take" if over else _waits(owner)))


def _is_ours(rule: Rule, lock: Lock, me: Me) -> bool:
    run, instance = lock.holder
    record = LockRecord(key="k", run=run, instance=instance, workflow="", since=0.0, nonce="")
    return singletons.is_ours(record, me.run, me.instance if rule.by_instance else instance)


def _waits(owner: Owner) -> str:
    return "park" if owner.lined else "stand"


def _ended(state: State, me: Me, then: str) -> State:
    return _with(state._replace(results=state.results | {me}), me, Owner(then))


def _woken(state: State, by: Me) -> State:
    """All who wait: with two runs the first is the only one."""
    waiters = state.waiters - {by}
    for me in waiters:
        owner = state.owners[INSTANCES.index(me)]
        state = _with(state, me, owner._replace(touched=True))
    return state._replace(waiters=waiters | (state.waiters - {by}))


def _operators(state: State) -> Iterator[Step]:
    if R1 in state.results and state.starts[0] == R1.instance:
        restarted = state._replace(starts=(R2.instance, state.starts[1]))
        yield "r is restarted", _with(restarted, R2, Owner("look"))
    if state.purging == "" and state.starts[0] == R1.instance:
        yield "r is purged", state._replace(starts=(GONE, state.starts[1]), purging="wake")
    if state.purging == "wake":
        yield "the purge wakes who waits", _woken(state, R1)._replace(purging="done")


def _is_named(state: State, me: Me) -> bool:
    return state.starts["rq".index(me.run)] == me.instance


def _with(state: State, me: Me, owner: Owner) -> State:
    at = INSTANCES.index(me)
    return state._replace(owners=(*state.owners[:at], owner, *state.owners[at + 1 :]))


def wrong(rule: Rule) -> Callable[[State], str]:
    """What is wrong with a state."""
    after = steps(rule)

    def found(state: State) -> str:
        going_on = [
            me for me, owner in zip(INSTANCES, state.owners, strict=True)
            if owner.at in {"inside", "end"} and _is_named(state, me) and me not in state.results
        ]  # fmt: skip
        if len(going_on) > 1:
            return f"{going_on[0]} and {going_on[1]} go on at once"
        for me, owner in zip(INSTANCES, state.owners, strict=True):
            if owner.at == "parked" and _is_named(state, me) and not any(after(state)):
                return f"{me} waits for ever"
        return ""

    return found
