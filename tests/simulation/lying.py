"""Lies for the checker: a sound history in which something is made wrong."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

from tests.simulation import checker
from tests.simulation.judging import Case, played


@dataclasses.dataclass
class Told:
    """An event that may be changed."""

    at: float
    who: str
    kind: str
    facts: dict[str, Any]

    def body(self, **fields: Any) -> None:
        """Other fields in the record that a mutation wrote."""
        self.facts["body"] = json.dumps(json.loads(self.facts["body"]) | fields).encode()


class Story(list[Told]):
    """A history."""

    def all(self, kind: str, **facts: Any) -> list[Told]:
        """Events of a kind; a fact given as text need only begin with it."""
        return [e for e in self if e.kind == kind and _fits(e, facts)]

    def one(self, kind: str, **facts: Any) -> Told:
        return self.all(kind, **facts)[0]

    def last(self, kind: str, **facts: Any) -> Told:
        return self.all(kind, **facts)[-1]

    def add(self, after: Told, kind: str, **facts: Any) -> Told:
        """The same event once more, changed, right after it."""
        made = Told(after.at, facts.pop("who", after.who), kind, after.facts | facts)
        self.insert(next(i for i, e in enumerate(self) if e is after) + 1, made)
        return made

    def move(self, event: Told, before: Told) -> None:
        self[:] = [e for e in self if e is not event]
        self.insert(next(i for i, e in enumerate(self) if e is before), event)


def _fits(event: Told, facts: dict[str, Any]) -> bool:
    return all(
        str(event.facts.get(name, "")).startswith(str(value))
        or (name == "name" and str(value) in str(event.facts.get(name, "")))
        for name, value in facts.items()
    )


@functools.cache
def _history(scenario: str) -> tuple[Any, ...]:
    return tuple(played(Case(1, scenario)).history.events)


def story(scenario: str) -> Story:
    return Story(Told(e.at, e.who, e.kind, dict(e.facts)) for e in _history(scenario))


Lie = Callable[[Story], object]
Lies = dict[str, tuple[str, Lie]]


def lies(told: Lies) -> Callable[..., Callable[[Lie], Lie]]:
    """A decorator whose functions are kept here, each by the rule that it breaks."""

    def lie(scenario: str = "zombie") -> Callable[[Lie], Lie]:
        """The function breaks the rule that it is named for, in a history of this scenario."""

        def decorate(fn: Lie) -> Lie:
            told[fn.__name__] = (scenario, fn)
            return fn

        return decorate

    return lie


def broken(scenario: str, lie: Lie | None = None) -> set[str]:
    """The rules that a history breaks, with that lie told in it."""
    told = story(scenario)
    if lie is not None:
        lie(told)
    found = checker.check((e.at, e.who, e.kind, e.facts) for e in told)
    return {violation.rule for violation in found}
