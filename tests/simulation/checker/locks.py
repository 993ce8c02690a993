"""The rules of singletons: who has a lock, who gets it next, who is turned away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tests.simulation.checker.case import (
    EARLY,
    EPOCH,
    Case,
    Fact,
    Instance,
    record,
    stays,
    was_turned_away,
)


def _locks(case: Case) -> Iterator[tuple[str, list[Fact]]]:
    for name, facts in case.mutations.items():
        if name.startswith("locks/") and name.count("/") == 1:
            yield name, facts


def _holder(lock: dict[str, Any]) -> tuple[str, str]:
    return lock.get("run", ""), lock.get("instance", "")


def locks_are_taken_from_nobody(case: Case) -> Iterator[str]:
    """A lock passes on when its run is over, its ttl has run out, or a human frees it."""
    for name, facts in _locks(case):
        for before, fact in pairwise(facts):
            was, run = record(before), record(before).get("run", "")
            if fact.verb == "delete":
                yield f"{fact.who} deleted {name}"
            elif run and _holder(record(fact)) != _holder(was):
                if not _may_pass(case, was, fact):
                    yield f"{fact.who} took {name} from run {run!r}, which goes on"


def _may_pass(case: Case, was: dict[str, Any], fact: Fact) -> bool:
    if case.is_over(*_holder(was), fact.order):
        return True
    ttl = was.get("ttl")
    if ttl is not None and EPOCH + fact.at >= was["since"] + ttl - EARLY:
        return True
    forced = any(f.who == fact.who and f.what == "release" for f in case.by_kind["asked"])
    cancel = case.instances[was["instance"]].cancel
    return forced and cancel is not None and cancel.order < fact.order


def bodies_need_their_lock(case: Case, instance: Instance) -> Iterator[str]:
    """Of the runs of one key one runs bodies: the one that the lock names.

    A run may go on beside the next holder where its lock had a ttl, and to clean up.
    """
    asked = _request(case, instance)
    if asked is None or not case.keeps_p11:
        return
    held = [stay for stay in stays(case.mutations.get(_name_of(asked), []))
            if _holder(record(stay.since)) == (instance.run, instance.id)]  # fmt: skip
    for body in instance.bodies:
        had = any(stay.since.order < body.order for stay in held)
        cleans_up = instance.cancel is not None and instance.cancel.order < body.order
        if had and (asked.get("ttl") is not None or cleans_up):
            continue
        if not any(stay.covers(body.order) for stay in held):
            yield f"{body.slot} began without the lock {asked['key']!r}"


def _request(case: Case, instance: Instance) -> dict[str, Any] | None:
    start = case.starts.get(instance.id)
    asked: dict[str, Any] | None = None if start is None else record(start).get("lock")
    return asked


def _name_of(asked: dict[str, Any]) -> str:
    return f"locks/{asked['key']}"


def waiters_go_in_line(case: Case) -> Iterator[str]:
    """A lock that is free goes to the first of those that stood in line before."""
    for name, facts in _locks(case):
        line = {n: stays(f) for n, f in case.mutations.items() if n.startswith(f"{name}/wait/")}
        for before, fact in pairwise(facts):
            was, taker = record(before), _holder(record(fact))
            if not taker[0] or taker == _holder(was):
                continue
            free = case.over_since(*_holder(was)) if was.get("run") else before.order
            if free is None or free > fact.order:
                continue  # the ttl has run out, at no moment of the history
            own = [n for n, s in line.items() if _holder(record(s[0].since)) == taker]
            for place, stood in line.items():
                waiter = _holder(record(stood[0].since))
                ahead = waiter != taker and (not own or place < own[0])
                waits = any(s.since.order < free and s.covers(fact.order) for s in stood)
                if ahead and waits and not case.is_over(*waiter, fact.order):
                    yield f"run {taker[0]!r} took {name}; run {waiter[0]!r} stood first in line"


def turned_away_for_a_reason(case: Case, instance: Instance) -> Iterator[str]:
    """Who is skipped, joined or refused never began, and another had the lock meanwhile."""
    asked, start = _request(case, instance), case.starts.get(instance.id)
    for fact in instance.results:
        result = record(fact)
        if asked is None or start is None or not was_turned_away(result):
            continue
        # A dead owner's refusal may land once the next has found the lock free, and has begun.
        if instance.enters and not case.landed_late(fact):
            yield "it was turned away after it had begun"
        named = result.get("skipped") or result.get("joined")
        if named is not None:
            other = _holder(named)
            if not _was_there(case, asked, other, fact) or case.is_over(*other, start.order):
                yield f"it was turned away because of run {other[0]!r}, which had no lock"
        elif asked["on_conflict"] in {"wait", "queue", "replace"}:
            yield from _waited_long_enough(case, instance, asked, fact)


def _was_there(case: Case, asked: dict[str, Any], other: tuple[str, str], result: Fact) -> bool:
    """Whether that run had the lock, or stood in line, before."""
    lock = _name_of(asked)
    seen = [f for n, facts in case.mutations.items() if n == lock or n.startswith(f"{lock}/wait/")
            for f in facts]  # fmt: skip
    return any(_holder(record(f)) == other and f.order < result.order for f in seen)


def _waited_long_enough(
    case: Case, instance: Instance, asked: dict[str, Any], result: Fact
) -> Iterator[str]:
    waits = case.mutations.get(f"{instance.folder}/waits/lock", [])
    bounds = []
    if asked.get("max_wait") is not None:
        bounds.append(asked["max_wait"])
    if asked.get("attempts") is not None:
        bounds.append((asked["attempts"] - 1) * asked["pause"])
    if not waits or not bounds:
        yield "it was turned away, and should have waited"
    elif record(result)["time"] < record(waits[0])["time"] + min(bounds) - EARLY:
        yield "it waited too short a time"


def no_lock_is_orphaned(case: Case) -> Iterator[str]:
    """At rest nobody holds a lock whose run goes on, and nobody stands in line."""
    for name in case.left or {}:
        if not name.startswith("locks/"):
            continue
        last = case.mutations[name][-1]
        if "/wait/" in name:
            if not case.landed_late(last):
                yield f"{name} is left"
        elif record(last).get("run") and not case.is_over(*_holder(record(last)), 1 << 60):
            yield f"{name} is held by run {record(last)['run']!r}, which is not over"


LOCK_RULES: list[Callable[[Case], Iterator[str]]] = [
    locks_are_taken_from_nobody,
    waiters_go_in_line,
    no_lock_is_orphaned,
]
SINGLETON_RULES: list[Callable[[Case, Instance], Iterator[str]]] = [
    bodies_need_their_lock,
    turned_away_for_a_reason,
]
