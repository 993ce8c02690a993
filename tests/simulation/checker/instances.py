"""The rules that each instance of a run must keep."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tests.simulation.checker.case import (
    Case,
    Fact,
    Instance,
    content,
    key_of,
    ran_out,
    record,
    slot_of,
    token_of,
    tokens_of,
    was_turned_away,
)
from tests.simulation.checker.groups import is_cheap, lasting

# -- records --------------------------------------------------------------------------------------


def facts_never_change(case: Case, instance: Instance) -> Iterator[str]:
    """S1, S2, S20: what is recorded is never replaced, nor deleted while `start` names it.

    What was purged may come back when a call lands late; it is nobody's then.
    """
    for fact in instance.changes:
        named = case.named_at(instance.run, fact.order)
        if fact.verb not in {"delete", "create"} or named == instance.id:
            yield f"{fact.who} did {fact.verb} {fact.name} at {fact.at}"


def one_record_for_each_call(_: Case, instance: Instance) -> Iterator[str]:
    """P1, P5: a slot has one path, a path one name, an order number one record."""
    slots = Counter(slot_of(content(record(f))) for f in instance.steps.values() if f.body)
    for slot, times in slots.items():
        if slot and times > 1:
            paths = [p for p, f in instance.steps.items() if slot_of(content(record(f))) == slot]
            yield f"slot {slot} is recorded at {paths}"
    numbers = Counter((record(f)["epoch"], record(f)["n"]) for f in instance.steps.values())
    for number, times in numbers.items():
        if times > 1:
            yield f"{times} records have the order number {number}"
    for path, fact in instance.steps.items():
        if not fact.name.endswith(path) and "~" not in fact.name:
            yield f"{fact.name} holds the record of {path}"


def records_are_what_bodies_made(_: Case, instance: Instance) -> Iterator[str]:
    """P6, S16: nothing is recorded that no body came to, in that epoch and at that attempt."""
    made = {body.token: body for body in instance.bodies}
    for path, fact in instance.steps.items():
        step = record(fact)
        if step["outcome"] not in {"value", "error"} or step.get("kind", "step") != "step":
            continue
        if fact.verb == "copy" or _is_unknown(step):
            continue
        body, end = made.get(content(step)), instance.ends.get(content(step))
        if body is None or end is None:
            yield f"{path}: no body came to {content(step)!r}"
            continue
        if end.outcome != step["outcome"] or end.order > fact.order:
            yield f"{path}: recorded {step['outcome']} at {fact.at}, its body ended {end}"
        if (body.epoch, body.attempt) != (step["epoch"], step.get("attempt", 1)):
            yield f"{path}: recorded of epoch {step['epoch']}, attempt {step.get('attempt', 1)}, ran {body}"  # noqa: E501  # a message is read as one line


def _is_unknown(step: dict[str, Any]) -> bool:
    """What no body came to: its owner died, or it was killed, or it took too long."""
    failure = str((step.get("failure") or {}).get("type", ""))
    return failure.endswith(("OutcomeUnknown", "ProcessDied", "StepTimeout"))


def failures_are_what_bodies_raised(_: Case, instance: Instance) -> Iterator[str]:
    """P6: a failed attempt was one; a worker's own end, or an outage, is none."""
    made = {body.token: body for body in instance.bodies}
    for fact in instance.attempts:
        attempt = record(fact)
        if _is_unknown(attempt):
            owner = (attempt["epoch"], attempt["attempt"])
            bodies = [b for b in _bodies_at(instance, attempt) if b.token not in instance.ends]
            if owner not in {(body.epoch, body.attempt) for body in bodies}:
                yield f"{fact.name}: no body of epoch and attempt {owner} was cut off"
            continue
        token = token_of(attempt["failure"].get("message", ""))
        end = instance.ends.get(token)
        if token not in made or end is None or end.outcome != "error":
            yield f"{fact.name}: no body failed with {token!r}"


def _bodies_at(instance: Instance, attempt: dict[str, Any]) -> list[Fact]:
    key = key_of(instance, attempt["path"])
    return [body for body in instance.bodies if body.key == key]


def _slot_of_failed(instance: Instance, attempt: dict[str, Any]) -> str:
    if _is_unknown(attempt):  # nothing that the body said is in the record
        return next((body.slot for body in _bodies_at(instance, attempt)), "")
    return slot_of(token_of(attempt["failure"]["message"]))


def keys_name_calls(case: Case, instance: Instance) -> Iterator[str]:
    """P5: an idempotency key is the same for all executions of a call, and for no other.

    Other code may give the call at that path, whose body recorded nothing, other arguments.
    """
    pairs = {(body.slot, body.key) for body in instance.bodies}
    for slot, times in Counter(slot for slot, _ in pairs).items():
        if times > 1:
            yield f"slot {slot} ran under {times} idempotency keys"
    starts = (f for f in case.by_kind["happened"] if f.what.startswith("starts, version "))
    versions = {fact.who: fact.what for fact in starts}
    calls = {(versions.get(body.who), body.slot, body.key) for body in instance.bodies}
    for (_, key), times in Counter((version, key) for version, _, key in calls).items():
        if times > 1:
            yield f"{times} slots share the idempotency key {key}"
    made = {body.token: body for body in instance.bodies}
    for path, fact in instance.steps.items():
        maker = made.get(content(record(fact)))
        if maker is not None and maker.key != key_of(instance, path):
            yield f"{path} ran under the idempotency key of another path"


def last_values_are_published(_: Case, instance: Instance) -> Iterator[str]:
    """Once a run has completed, what it published last is what everybody reads."""
    if not instance.results or record(instance.results[0])["status"] != "completed":
        return
    for name, by_epoch in instance.published.items():
        last = by_epoch[max(by_epoch)]
        said = record(last)["value"]
        if said != {"progress": "done", "part": 4}.get(name):
            yield f"{name} is {said!r} at the end"
        # An owner that died may have ended it while its successor was still under way.
        mine = by_epoch.get(record(instance.results[0])["epoch"])
        if mine is not None and mine.order > instance.results[0].order:
            yield f"{name} was written after the result"


# -- what workflows received ----------------------------------------------------------------------


def received_is_recorded(_: Case, instance: Instance) -> Iterator[str]:
    """P1, S6: whatever any execution was handed had been recorded before, and equals it."""
    recorded = {content(record(f)): f for f in instance.steps.values()}
    for epoch, facts in instance.received.items():
        for fact in facts:
            for token in tokens_of(fact.what):
                if is_cheap(token):
                    continue  # `recorded_before_others_see_it` says when
                there = recorded.get(token)
                if there is None:
                    yield f"epoch {epoch} was handed {token}, which is not recorded"
                elif there.order > fact.order:
                    yield f"epoch {epoch} was handed {token} before it was recorded"


def executions_agree(case: Case, instance: Instance) -> Iterator[str]:
    """S9: of any two executions, one was handed the beginning of what the other was."""
    logs = [(e, lasting(instance, facts)) for e, facts in instance.received.items()]
    longest: list[object] = []
    for epoch, log in sorted(logs, key=lambda item: len(item[1])):
        if log[: len(longest)] != longest and not case.had_two_owners(instance.run):
            yield f"epoch {epoch} was handed {log}, another {longest}"
            return
        longest = log


# -- outcomes -------------------------------------------------------------------------------------


def results_are_what_functions_came_to(_: Case, instance: Instance) -> Iterator[str]:
    """P2, P6: at most one result, which the function came to in that epoch, before."""
    unfinished = "never awaited or had not finished"  # what durable itself says of a function
    if len(instance.results) > 1:
        yield f"{len(instance.results)} results"
    for fact in instance.results:
        result = record(fact)
        if result["status"] == "cancelled" or was_turned_away(result) or ran_out(result):
            continue
        outcome = "value" if result["status"] == "completed" else "error"
        said = result.get("value") if outcome == "value" else result["failure"]["message"]
        came = [f for f in instance.left if f.epoch == result["epoch"] and f.order < fact.order]
        left_early = outcome == "error" and unfinished in str(said)
        if not any(left_early or (f.outcome == outcome and _same(f.value, said)) for f in came):
            yield f"the result is {said!r}, but the function of epoch {result['epoch']} came to {came}"  # noqa: E501  # a message is read as one line


def results_follow_their_records(_: Case, instance: Instance) -> Iterator[str]:
    """S6: the result is written after everything that the function was handed."""
    for fact in instance.results:
        recorded = {content(record(f)) for f in instance.steps.values() if f.order < fact.order}
        for got in instance.received.get(record(fact)["epoch"], []):
            if not recorded.issuperset(tokens_of(got.what)):
                yield f"the result was recorded before {got.what!r}"


def nothing_follows_a_result(case: Case, instance: Instance) -> Iterator[str]:
    """P2: once the result is known to a worker, no execution of the instance begins."""
    for result in instance.results:
        for enter in instance.enters:
            listed = case.listed_before(enter.order, enter.who, instance.run)
            if listed is not None and listed.order > result.order:
                yield f"epoch {enter.epoch} began after the result had been listed"


def _same(one: object, two: object) -> bool:
    """Messages of cancellations hold the addresses of objects."""
    return str(one) == str(two) or tokens_of(one) == tokens_of(two)


# -- owners ---------------------------------------------------------------------------------------


def epochs_have_one_owner(case: Case, instance: Instance) -> Iterator[str]:
    """P3, S3: each owner has an epoch of its own, and later ones higher ones.

    A purge deletes the epochs, so a claim that was under way meanwhile may land after it. Whoever
    replays a purged instance on it may do nothing more: the last of these rules sees its bodies.
    """
    by_epoch: dict[int, list[str]] = defaultdict(list)
    for enter in instance.enters:
        if case.purged_by(instance, enter.order):
            continue
        by_epoch[enter.epoch].append(enter.who)
        claim = instance.epochs.get(enter.epoch)
        if enter.epoch > 1 and (claim is None or claim.order > enter.order):
            yield f"epoch {enter.epoch} began unclaimed"
        if enter.epoch > 1 and claim is not None and claim.who != enter.who:
            yield f"epoch {enter.epoch} was claimed by {claim.who} and begun by {enter.who}"
    for epoch, owners in by_epoch.items():
        if len(owners) > 1:
            yield f"epoch {epoch} was executed by {owners}"
    claims = [(n, f) for n, f in sorted(instance.epochs.items()) if f.verb != "copy"]
    for (lower, first), (higher, second) in pairwise(claims):
        if first.order > second.order:
            yield f"epoch {higher} was claimed before {lower}"
    for body in instance.bodies:
        if by_epoch.get(body.epoch) not in ([body.who], None):
            yield f"{body.slot} ran as epoch {body.epoch} in {body.who}, not {by_epoch[body.epoch]}"


def recorded_bodies_rest(case: Case, instance: Instance) -> Iterator[str]:
    """P1: no body runs whose outcome the owner's own list contained."""
    recorded = {slot_of(content(record(f))): f for f in instance.steps.values()}
    for body in instance.bodies:
        fact = recorded.get(body.slot)
        if fact is None or fact.order > body.order:
            continue
        claim = instance.epochs.get(body.epoch)
        if claim is None:
            continue
        listed = case.listed_before(claim.order, body.who, instance.run)
        if listed is not None and fact.order < listed.order:
            yield f"{body.slot} is recorded since {fact.at}, and ran in epoch {body.epoch}"


def bodies_repeat_for_a_reason(_: Case, instance: Instance) -> Iterator[str]:
    """S17: one owner runs an attempt once, and the next only after the failure is recorded."""
    runs = Counter((body.epoch, body.slot, body.attempt) for body in instance.bodies)
    for (epoch, slot, attempt), times in runs.items():
        if times > 1:
            yield f"epoch {epoch} ran attempt {attempt} of {slot} {times} times"
    failed = defaultdict(list)
    for fact in instance.attempts:
        failed[record(fact)["attempt"]].append(fact)
    for body in instance.bodies:
        if body.attempt > 1:
            before = [
                f
                for f in failed[body.attempt - 1]
                if _slot_of_failed(instance, record(f)) == body.slot and f.order < body.order
            ]
            if not before:
                yield f"attempt {body.attempt} of {body.slot} ran before the failure of the last"


INSTANCE_RULES: list[Callable[[Case, Instance], Iterator[str]]] = [
    facts_never_change,
    one_record_for_each_call,
    records_are_what_bodies_made,
    failures_are_what_bodies_raised,
    keys_name_calls,
    last_values_are_published,
    received_is_recorded,
    executions_agree,
    results_are_what_functions_came_to,
    results_follow_their_records,
    nothing_follows_a_result,
    epochs_have_one_owner,
    recorded_bodies_rest,
    bodies_repeat_for_a_reason,
]
