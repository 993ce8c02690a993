"""A value that a person gives for a call: `skip`."""

from __future__ import annotations

import msgspec

from durable.client import reading
from durable.errors import UsageError
from durable.protocol import names, records, values
from durable.protocol.records import Group, Step, Take
from durable.runtime import admission
from durable.runtime.facts import Facts
from durable.store import Refused, Store

BY_HAND = 0  # the epoch of records that no owner of the run has written


def outcome(store: Store, facts: Facts, path: str, value: object, said: str) -> Step:
    """The outcome as it is to be recorded.

    Args:
        said: who gives it and why.

    Raises:
        UsageError: there can be no such path, or the value cannot be stored.
    """
    if not path or path.startswith("/"):
        raise UsageError(f"{path!r} is no path of a call", hint="`durable show` lists them")
    if path in admission.PATHS:
        raise UsageError(
            f"{path!r} is what a run waits for before its code goes on, and no call that returns "
            "a value",
            hint="`durable show` says how long it waits; the run can be cancelled",
        )
    raw, _ = values.encode_result(value, None, name=path)
    number = sum(step.epoch == BY_HAND for step in facts.outcomes()) + 1
    return Step(
        path=path, name=reading.name_of(path), outcome="value", epoch=BY_HAND, n=number,
        nonce=store.system.token(), time=store.now(), value=msgspec.Raw(raw),
        note=said,
    )  # fmt: skip


def is_same(recorded: Step, skipped: Step) -> bool:
    """Whether a person has given that value before."""
    if isinstance(recorded.value, msgspec.UnsetType) or isinstance(
        skipped.value, msgspec.UnsetType
    ):
        return False
    return recorded.epoch == BY_HAND and bytes(recorded.value) == bytes(skipped.value)


async def record(store: Store, run: str, facts: Facts, skipped: Step) -> bool:
    """Record it for a run that is not over; False: the run got on meanwhile."""
    name, placed = _place(run, facts, skipped)
    written = await store.create(name, records.encode(placed), nonce=skipped.nonce)
    if isinstance(written, Refused):
        return False
    return isinstance(placed, Take) or await close_groups(store, run, facts, skipped.path)


async def close_groups(store: Store, run: str, facts: Facts, path: str) -> bool:
    """Nobody who does not know of the skipped call records it together with others any more.

    False: somebody has done so just now.
    """
    instance = facts.start.instance
    while True:
        group = Group(
            k=facts.journal().groups + 1, epoch=BY_HAND, nonce=store.system.token(),
            time=store.now(), steps=[],
        )  # fmt: skip
        name, body = names.group(run, instance, group.k), records.encode(group)
        if not isinstance(await store.create(name, body, nonce=group.nonce), Refused):
            return True
        facts = await reading.load(store, run)
        if facts.start.instance != instance:
            return False
        if path in {step.path for late in facts.groups for step in late.steps}:
            return False


def _place(id: str, facts: Facts, skipped: Step) -> tuple[str, Step | Take]:
    """Where an outcome stands: that of a wait for an event has its place among the takes.

    There it competes with the event, so that one of them counts for everybody.
    """
    instance = facts.start.instance
    wait = next((wait for wait in facts.waits if wait.path == skipped.path), None)
    if wait is None or wait.kind != "event":
        return names.step(id, instance, skipped.path), skipped
    take = Take(
        k=max((take.k for take in facts.takes), default=0) + 1, path=wait.path, kind=wait.kind,
        name=wait.name, outcome=skipped.outcome, epoch=skipped.epoch, n=skipped.n,
        nonce=skipped.nonce, time=skipped.time, value=skipped.value, note=skipped.note,
    )  # fmt: skip
    return names.take(id, instance, take.k), take
