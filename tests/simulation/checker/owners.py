"""The rules of ownership: leases, fences, markers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.simulation.checker.case import Case, Fact, record

JUDGED_SECONDS = 2.0  # from a look at a lease that was absent to what it led to
PROVED_SECONDS = 3.0  # in which a worker looks at the lock files of its host, and fences
_OWNED = ("steps/", "attempts/", "epochs/", "result")


def _state(fact: Fact) -> str:
    return str(record(fact).get("state", "alive"))


def fences_are_justified(case: Case) -> Iterator[str]:
    """T2: a lease is fenced when it is older than its own ttl, or its holder is proved dead.

    Who has a clock that runs too fast takes it for older than it is.
    """
    hosts = _Hosts(case)
    for name, facts in case.mutations.items():
        if not name.startswith("workers/"):
            continue
        for before, fact in pairwise(facts):
            if fact.verb != "replace" or _state(fact) != "dead" or before.verb == "delete":
                continue
            if _state(before) == "dead":
                yield f"{name} was fenced twice"
            elif hosts.can_prove(fact.who, record(before)["label"], fact.at):
                continue
            elif case.keeps_p11 and fact.at - before.at <= record(before)["ttl"]:
                yield f"{fact.who} fenced {name} {fact.at - before.at:.2f} s after its renewal"


def provable_deaths_are_seen(case: Case) -> Iterator[str]:
    """L2: where nothing else goes wrong, who dies is fenced at once by a worker on its host."""
    if case.by_kind["fault"] or any("stopped" in f.what for f in case.by_kind["happened"]):
        return
    hosts = _Hosts(case)
    for name, facts in case.mutations.items():
        if not name.startswith("workers/"):
            continue
        label = record(facts[0])["label"]
        died = hosts.killed.get(label)
        if died is None or not hosts.mates(label, died):
            continue
        ends = [f.at for f in facts if f.verb == "delete" or _state(f) == "dead"]
        if not ends or min(ends) > died + PROVED_SECONDS:
            yield f"{label} died at {died:.1f}, on a host with others; its lease ended {ends}"


class _Hosts:
    def __init__(self, case: Case) -> None:
        self._hosts = {f.who: (f.host, f.at) for f in case.by_kind["host"]}
        self.killed = {f.who: f.at for f in case.by_kind["happened"] if f.what == "killed"}
        self._ended = {f.who: f.at for f in case.by_kind["happened"] if f.what == "told to end"}

    def can_prove(self, prober: str, who: str, at: float) -> bool:
        """Whether the lock file of a process that was dead by then told its neighbour so."""
        if prober not in self._hosts or who not in self._hosts or prober == who:
            return False
        one, two = self._hosts[prober], self._hosts[who]
        return one[0] == two[0] and self.killed.get(who, at + 1) <= at

    def mates(self, who: str, at: float) -> bool:
        """Whether others live on its host, before and after."""
        return any(
            self.can_prove(other, who, at)
            and self._hosts[other][1] < at - PROVED_SECONDS
            and other not in self.killed
            and self._ended.get(other, at + 100) > at + PROVED_SECONDS
            for other in self._hosts
        )


def no_two_believe(case: Case) -> Iterator[str]:
    """P11, T1: when a lease is fenced, its holder does not trust it any more."""
    if any("P11" in f.what for f in case.by_kind["phase"]):
        return  # the clocks of this world are worse than the promise allows
    for fact in case.by_kind["mutation"]:
        fenced = fact.verb == "replace" and _state(fact) == "dead"
        if fenced and fact.is_.get("holder_trusts"):
            yield f"{fact.who} fenced {fact.name} while its holder trusted it"


def the_fenced_are_silent(case: Case) -> Iterator[str]:
    """P3, S4: a fenced lease is never alive again."""
    for name, facts in case.mutations.items():
        if name.startswith("workers/"):
            dead = False
            for fact in facts:
                if dead and fact.verb != "delete" and _state(fact) == "alive":
                    yield f"{name} was renewed by {fact.who} after its fence"
                dead = fact.verb != "delete" and _state(fact) == "dead"


def the_fenced_do_nothing(case: Case) -> Iterator[str]:
    """P11, S4: once its lease is fenced a worker begins and records nothing, but under another."""
    newest: dict[str, Fact] = {}  # the lease of each process; an earlier one may land later
    fenced: set[str] = set()
    for fact in case.facts if case.keeps_p11 else []:
        if fact.kind == "mutation" and fact.name.startswith("workers/"):
            if fact.verb == "create":
                newest[fact.who] = max(newest.get(fact.who, fact), fact, key=_number)
            elif fact.verb != "delete" and _state(fact) == "dead":
                fenced.add(fact.name)
        elif fact.who in newest and newest[fact.who].name in fenced:
            if fact.kind == "body":
                yield f"{fact.who} started {fact.slot} of run {fact.run!r} after it was fenced"
            elif fact.kind == "call" and _records(fact):
                yield f"{fact.who} sent {fact.name} after it was fenced"


def _number(fact: Fact) -> int:
    """Of the call that made the change: they are numbered as they are sent."""
    number: int = fact.number
    return number


def the_untrusted_do_nothing(case: Case) -> Iterator[str]:
    """P11, T3: an owner past its own deadline starts no body and records nothing."""
    for body in case.by_kind["body"]:
        if body.trusted is False:
            yield f"{body.who} started {body.slot} of run {body.run!r} without its lease"
    for call in case.by_kind["call"]:
        if call.trusted is False and _records(call):
            yield f"{call.who} sent {call.name} without its lease"


def _records(call: Fact) -> bool:
    """Whether only the owner of a run sends such a call."""
    kind = call.name.split("/", 3)[-1]
    return call.verb == "create" and call.name.startswith("runs/") and kind.startswith(_OWNED)


def markers_change_by_their_rules(case: Case) -> Iterator[str]:
    """S4: a marker is taken from nobody alive, and deleted by its holder alone."""
    leases = _Leases(case)
    for name, facts in case.mutations.items():
        if not name.startswith("live/"):
            continue
        for before, fact in pairwise(facts):
            if before.verb == "delete":
                continue
            was = record(before)
            holder = was.get("holder", "")
            if fact.verb == "delete":
                if not holder or leases.label(holder) != fact.who:
                    yield f"{fact.who} deleted {name}, which {leases.label(holder)} held"
            elif record(fact).get("holder", "") != holder and holder:
                mine = leases.label(holder) == fact.who
                # Whoever purges a run leaves its marker to the next, who finds it buried.
                buried = case.named_at(was["run"], fact.order) != was["instance"]
                if not (mine or buried) and leases.alive(
                    holder, fact.order, fact.at - JUDGED_SECONDS
                ):
                    yield f"{fact.who} took {name} from {leases.label(holder)}, which is alive"


def holders_have_a_lease(case: Case) -> Iterator[str]:
    """S4: a lease is acknowledged before anything is taken under it."""
    for name, facts in case.mutations.items():
        for fact in facts if name.startswith("live/") else []:
            holder = record(fact).get("holder", "") if fact.verb != "delete" else ""
            leases = case.mutations.get(f"workers/{holder}", [])
            if holder and not any(lease.order < fact.order for lease in leases):
                yield f"{fact.who} took {name} before it had a lease"


class _Leases:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._labels: dict[str, str] = {}
        for name, facts in case.mutations.items():
            if name.startswith("workers/"):
                for fact in facts:
                    said = json.loads(fact.body or b"{}").get("label") if "body" in fact.is_ else ""
                    if said:
                        self._labels[name.removeprefix("workers/")] = said

    def label(self, worker: str) -> str:
        return self._labels.get(worker, worker)

    def alive(self, worker: str, order: int, since: float) -> bool:
        """Whether the lease stood, alive, at that moment, and had since then."""
        alive, absent_until = False, 0.0
        for fact in self._case.mutations.get(f"workers/{worker}", []):
            if fact.order > order:
                break
            if not alive:
                absent_until = fact.at
            alive = fact.verb != "delete" and _state(fact) == "alive"
        return alive and absent_until < since


OWNER_RULES: list[Callable[[Case], Iterator[str]]] = [
    fences_are_justified,
    provable_deaths_are_seen,
    no_two_believe,
    the_fenced_are_silent,
    the_fenced_do_nothing,
    the_untrusted_do_nothing,
    markers_change_by_their_rules,
    holders_have_a_lease,
]
