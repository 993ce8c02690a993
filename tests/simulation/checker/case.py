"""A history, sorted by what it is about."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

REGISTERS = frozenset({"beats", "state"})  # overwritten, by the one owner of their epoch

EPOCH = 1_700_000_000.0  # the store's time when a simulation begins
EARLY = 2.0  # seconds by which the store's time may be off
LATE_SECONDS = 3.0  # on the way: nobody waits for such a call any more

_TOKEN = re.compile(r"[\w@-]+\|\d+")  # as `tests.simulation.witness` makes them


class Fact(NamedTuple):
    """One event: when, who, and the rest. `order` is its place in the history."""

    order: int
    at: float
    who: str
    kind: str
    is_: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.is_[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Instance:
    """One instance of one run, and all that is known of it.

    Attributes:
        steps: creates of outcomes, by path; `twice`: paths that have several.
        groups: records of several outcomes, by their place in the chain.
        bodies: executions of bodies; `ends` of them by token.
        published: the last write of each name and epoch.
        epochs: claims by number.
        enters: begun executions of the workflow function.
        received: what each epoch's execution was handed, in order.
        left: ends of the workflow function.
    """

    run: str
    id: str
    steps: dict[str, Fact] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    groups: dict[int, Fact] = field(default_factory=dict)
    attempts: list[Fact] = field(default_factory=list)
    published: dict[str, dict[int, Fact]] = field(default_factory=lambda: defaultdict(dict))
    epochs: dict[int, Fact] = field(default_factory=dict)
    takes: dict[int, Fact] = field(default_factory=dict)
    events: dict[str, Fact] = field(default_factory=dict)  # by name and key
    cancel: Fact | None = None
    sleeps: list[Fact] = field(default_factory=list)  # begun in any execution
    slept: list[Fact] = field(default_factory=list)
    results: list[Fact] = field(default_factory=list)
    changes: list[Fact] = field(default_factory=list)  # replaced or deleted facts
    bodies: list[Fact] = field(default_factory=list)
    ends: dict[str, Fact] = field(default_factory=dict)
    enters: list[Fact] = field(default_factory=list)
    received: dict[int, list[Fact]] = field(default_factory=lambda: defaultdict(list))
    left: list[Fact] = field(default_factory=list)

    def __str__(self) -> str:
        return f"run {self.run!r}"

    @property
    def folder(self) -> str:
        """Where its objects are."""
        return f"runs/{quote(self.run, safe='.')}/{self.id}"

    @property
    def key(self) -> str:
        """The idempotency key of the workflow function itself."""
        return key_of(self, "")


def key_of(instance: Instance, path: str) -> str:
    text = f"{instance.run}\n{instance.id}\n{path}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def record(fact: Fact) -> dict[str, Any]:
    """The JSON in the object that a mutation wrote."""
    if "record" not in fact.is_:
        fact.is_["record"] = json.loads(fact.is_.get("body") or b"{}")
    found: dict[str, Any] = fact.is_["record"]
    return found


class Case:
    """See the module's docstring.

    Attributes:
        facts: all events, in order.
        by_kind: the same by kind.
        mutations: of each object, by name, in order.
        instances: by id.
        left: what was there at rest, by name; None if it never came to rest.
        last: the same, or what was there when nothing went on any more.
        starts: what each instance was asked to do, by instance.
        keeps_p11: whether the clocks of this world are as good as P11 asks for.
    """

    def __init__(self, events: Iterable[tuple[float, str, str, dict[str, Any]]]) -> None:
        self.facts = [
            Fact(i, at, who, kind, dict(facts)) for i, (at, who, kind, facts) in enumerate(events)
        ]
        self.by_kind: dict[str, list[Fact]] = defaultdict(list)
        for fact in self.facts:
            self.by_kind[fact.kind].append(fact)
        self.mutations: dict[str, list[Fact]] = defaultdict(list)
        for fact in self.by_kind["mutation"]:
            self.mutations[fact.name].append(fact)
        self._sent: dict[tuple[str, str], list[Fact]] = defaultdict(list)
        self.left: dict[str, bytes] | None = None
        self.last: dict[str, bytes] | None = None
        if self.by_kind["rest"]:
            self.left = self.by_kind["rest"][-1].left
        for fact in (*self.by_kind["stuck"], *self.by_kind["rest"]):
            self.last = fact.is_.get("left", self.last)
        self.expected: dict[str, str] = {
            f.run: f.outcome for f in self.by_kind["expected"]
        }  # what a run comes to, where it is not an outcome
        self.instances: dict[str, Instance] = {}
        self.starts: dict[str, Fact] = {}
        self.keeps_p11 = not any("P11" in f.what for f in self.by_kind["phase"])
        self._find_instances()
        self._sort_executions()

    def _find_instances(self) -> None:
        for name, facts in self.mutations.items():
            parts = name.split("/")
            if parts[0] != "runs":
                continue
            run = unquote(parts[1])
            if parts[2:] == ["start"]:
                for fact in facts:
                    if fact.verb != "delete" and (made := record(fact).get("instance")):
                        self._instance(run, made)
                        if not record(fact).get("tombstone"):
                            self.starts.setdefault(made, fact)
                continue
            self._sort(self._instance(run, parts[2]), parts[3:], facts)

    def _instance(self, run: str, id_: str) -> Instance:
        return self.instances.setdefault(id_, Instance(run, id_))

    def _sort(self, instance: Instance, parts: list[str], facts: list[Fact]) -> None:
        first, *more = facts
        if parts[0] not in REGISTERS:
            instance.changes += more
        match parts[0]:
            case "state":
                instance.published[unquote(parts[1])][int(parts[2])] = facts[-1]
            case "steps":
                instance.steps[record(first).get("path", "/".join(parts[1:]))] = first
            case "groups":
                instance.groups[int(parts[1])] = first
                for step in record(first).get("steps", []):
                    self._sort_grouped(instance, first, step)
            case "attempts":
                instance.attempts.append(first)
            case "epochs":
                instance.epochs[int(parts[1])] = first
            case "takes":
                instance.takes[int(parts[1])] = first
            case "events":
                instance.events["/".join(parts[1:])] = first
            case "cancel":
                instance.cancel = first
            case "result":
                instance.results.append(first)

    def _sort_grouped(self, instance: Instance, group: Fact, step: dict[str, Any]) -> None:
        """An outcome in a group is as one by itself that was created then."""
        path = step["path"]
        if path in instance.steps:
            instance.twice.append(path)
        facts = {**group.is_, "name": f"{group.name}/{path}", "record": step}
        instance.steps[path] = group._replace(is_=facts)

    def _sort_executions(self) -> None:
        by_key = {instance.key: instance for instance in self.instances.values()}
        for kind in ("enter", "received", "left", "sleeps", "slept"):
            for fact in self.by_kind[kind]:
                instance = by_key.get(fact.key)
                if instance is None:
                    continue  # `whole.executions_are_known` says so
                match kind:
                    case "received":
                        instance.received[fact.epoch].append(fact)
                    case "enter":
                        instance.enters.append(fact)
                    case "left":
                        instance.left.append(fact)
                    case "sleeps":
                        instance.sleeps.append(fact)
                    case "slept":
                        instance.slept.append(fact)
        self.known_keys = set(by_key)
        by_body: dict[str, Instance] = {}
        for instance in self.instances.values():
            for path in instance.steps:
                by_body[key_of(instance, path)] = instance
        latest: dict[tuple[str, str, int], Instance] = {}
        for instance in self.instances.values():
            for fact in instance.enters:
                latest[instance.run, fact.who, fact.epoch] = instance
        for fact in self.by_kind["body"]:
            owner = by_body.get(fact.key) or latest.get((fact.run, fact.who, fact.epoch))
            if owner is not None:
                owner.bodies.append(fact)
        ends = {fact.token: fact for fact in self.by_kind["ended"]}
        for instance in self.instances.values():
            instance.ends = {b.token: ends[b.token] for b in instance.bodies if b.token in ends}

    def named_at(self, run: str, order: int) -> str:
        """The instance that `start` named at some moment; empty for none."""
        named = ""
        for fact in self.mutations.get(f"runs/{quote(run, safe='.')}/start", []):
            if fact.order <= order:
                said = record(fact)
                named = "" if said.get("tombstone") else said.get("instance", "")
        return named

    def purged_by(self, instance: Instance, order: int) -> bool:
        """Whether a purge had turned it into a tombstone by that moment."""
        return any(
            fact.order <= order and record(fact).get("tombstone")
            for fact in self.mutations.get(f"runs/{quote(instance.run, safe='.')}/start", [])
            if record(fact).get("instance") == instance.id
        )

    def over_since(self, run: str, instance: str) -> int | None:
        """Where in the history the instance was over: a result, or `start` named it no more."""
        found = self.instances.get(instance)
        ends = [fact.order for fact in found.results] if found else []
        named = False
        for fact in self.mutations.get(f"runs/{quote(run, safe='.')}/start", []):
            said = record(fact)
            names_it = said.get("instance") == instance and not said.get("tombstone")
            if named and not names_it:
                ends.append(fact.order)
            named = names_it
        return min(ends, default=None)

    def is_over(self, run: str, instance: str, order: int) -> bool:
        """Whether it was over by then."""
        since = self.over_since(run, instance)
        return since is not None and since < order

    def landed_late(self, fact: Fact) -> bool:
        """Whether nobody waited for that call any more when it changed the bucket."""
        sent = [f for f in self.by_kind["call"] if f.number == fact.number]
        return bool(sent) and fact.at - sent[0].at > LATE_SECONDS

    def had_two_owners(self, run: str) -> bool:
        """Whether somebody deleted the lease of a worker that had this run.

        Whoever takes the run then acts beside its holder, and code that depends on which of two
        calls ends first may have seen either: the run may need a human.
        """
        robbed = [f for f in self.by_kind["mutation"]
                  if f.who == "somebody" and f.name.startswith("workers/")]  # fmt: skip
        return any(
            (said.get("run"), said.get("holder")) == (run, lease.name.removeprefix("workers/"))
            for lease in robbed
            for name, facts in self.mutations.items()
            if name.startswith("live/")
            for stay in stays(facts)
            if stay.covers(lease.order) and (said := record(stay.since))
        )

    def listed_before(self, order: int, who: str, run: str) -> Fact | None:
        """The call for the first page of the last list of a run's folder that a process asked for.

        Pages of one list follow each other without another call about the run between them.
        """
        folder = f"runs/{run}/"
        if not self._sent:
            for fact in self.by_kind["call"]:
                about = "/".join(fact.name.split("/")[:2])
                self._sent[fact.who, f"{about}/"].append(fact)
        sent = self._sent.get((who, folder), [])
        first = None
        for fact in reversed(sent[: bisect_left(sent, order, key=lambda fact: fact.order)]):
            if (fact.verb, fact.name) == ("list", folder):
                first = fact
            elif first is not None:
                break
        return first


class Stay(NamedTuple):
    """One state of an object: from the mutation that made it to the one that ended it."""

    since: Fact
    until: Fact | None

    def covers(self, order: int) -> bool:
        """Whether the object stood like this at that moment."""
        return self.since.order < order and (self.until is None or order < self.until.order)


def stays(facts: list[Fact]) -> list[Stay]:
    """The states of an object, one after the other, but for those in which it was not there."""
    ends = [*facts[1:], None]
    return [Stay(a, b) for a, b in zip(facts, ends, strict=False) if a.verb != "delete"]


def tokens_of(value: object) -> list[str]:
    """The tokens that bodies made, wherever they are in what a workflow was handed."""
    return _TOKEN.findall(str(value))


def token_of(value: object) -> str:
    """The first of them; empty if there is none."""
    found = _TOKEN.search(str(value))
    return found[0] if found else ""


def content(step: dict[str, Any]) -> str:
    """The token in a recorded outcome."""
    if step.get("failure"):
        return token_of(step["failure"].get("message", ""))
    return token_of(step.get("value", ""))


def was_turned_away(result: dict[str, Any]) -> bool:
    """Whether the run never began, because another had the lock of its singleton."""
    kind = str((result.get("failure") or {}).get("type", ""))
    return "skipped" in result or "joined" in result or kind.endswith("SingletonTaken")


def ran_out(result: dict[str, Any]) -> bool:
    """Whether the run was not over at its deadline."""
    return str((result.get("failure") or {}).get("type", "")).endswith("RunTimeout")


def slot_of(token: str) -> str:
    return token.rpartition("|")[0]
