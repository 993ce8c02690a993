"""Judges a recorded history. Shares no code with durable: only the words of its records.

`check(events)` returns what is wrong, as (rule, text). The names of the promises (P1, S9, ...) in
the rules' docstrings are those of docs/explanation/reliability.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tests.simulation.checker.case import Case, Instance
from tests.simulation.checker.effects import EFFECT_RULES
from tests.simulation.checker.features import CASE_RULES, FEATURE_RULES
from tests.simulation.checker.groups import GROUP_RULES
from tests.simulation.checker.held import HELD_RULES
from tests.simulation.checker.instances import INSTANCE_RULES
from tests.simulation.checker.locks import LOCK_RULES, SINGLETON_RULES
from tests.simulation.checker.owners import OWNER_RULES
from tests.simulation.checker.queues import QUEUE_RULES, SLOT_RULES
from tests.simulation.checker.schedules import SCHEDULE_RULES
from tests.simulation.checker.whole import WHOLE_RULES, nothing_broke

# What runs share; lies about it are in test_checker_shared.
SHARED_RULES: list[Callable[[Case], Iterator[str]]] = [
    *LOCK_RULES, *QUEUE_RULES, *SCHEDULE_RULES, *EFFECT_RULES, *HELD_RULES,
]  # fmt: skip
SHARING_RULES: list[Callable[[Case, Instance], Iterator[str]]] = [*SINGLETON_RULES, *SLOT_RULES]


class Violation(NamedTuple):
    """A rule, and how it was broken."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(events: Iterable[tuple[float, str, str, dict[str, object]]]) -> list[Violation]:
    """Apply every rule to a history; that something was waited for in vain is said last."""
    case = Case(events)
    found: list[Violation] = []
    whole: list[Callable[[Case], Iterator[str]]] = [
        *WHOLE_RULES, *OWNER_RULES, *CASE_RULES, *SHARED_RULES,
    ]  # fmt: skip
    for rule in whole:
        found += [Violation(rule.__name__, text) for text in rule(case)]
    each: list[Callable[[Case, Instance], Iterator[str]]] = [
        *INSTANCE_RULES, *GROUP_RULES, *FEATURE_RULES, *SHARING_RULES,
    ]  # fmt: skip
    for instance in case.instances.values():
        for instance_rule in each:
            found += [
                Violation(instance_rule.__name__, f"{instance}: {text}")
                for text in instance_rule(case, instance)
            ]
    return sorted(found, key=lambda violation: violation.rule == nothing_broke.__name__)
