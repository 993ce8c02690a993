"""The rules of outcomes that are recorded together, after they were handed over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tests.simulation.checker.case import Case, Fact, Instance, content, record, slot_of, tokens_of

CHEAP = "cheap"  # slots of steps that are recorded together begin so


def is_cheap(token: str) -> bool:
    """Whether a cheap step came to this value."""
    return slot_of(token).startswith(CHEAP)


def lasting(instance: Instance, received: Iterable[Fact]) -> list[object]:
    """What an execution was handed, up to the first outcome that was lost with its owner."""
    recorded = {content(record(fact)) for fact in instance.steps.values()}
    kept: list[object] = []
    for fact in received:
        if any(is_cheap(token) and token not in recorded for token in tokens_of(fact.what)):
            break
        kept.append(fact.what)
    return kept


def groups_are_a_chain(_: Case, instance: Instance) -> Iterator[str]:
    """P1: no call has two outcomes, and no group is without the one before it."""
    for path in instance.twice:
        yield f"{path} has two outcomes"
    places = sorted(instance.groups)
    if places != list(range(1, len(places) + 1)):
        yield f"the groups are {places}"


def recorded_before_others_see_it(_: Case, instance: Instance) -> Iterator[str]:
    """P1, S6: an ordinary body begins when what its code was handed before is recorded."""
    recorded = {content(record(f)): f.order for f in instance.steps.values()}
    for body in instance.bodies:
        if body.slot.startswith(CHEAP):
            continue
        for got in instance.received.get(body.epoch, []):
            for token in tokens_of(got.what) if got.order < body.order else ():
                if is_cheap(token) and recorded.get(token, body.order) >= body.order:
                    yield f"{body.slot} began in epoch {body.epoch} before {token} was recorded"


GROUP_RULES: list[Callable[[Case, Instance], Iterator[str]]] = [
    groups_are_a_chain,
    recorded_before_others_see_it,
]
