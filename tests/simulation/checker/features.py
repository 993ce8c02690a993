"""The rules of waits, events, cancellation, undo, at-most-once and singletons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from tests.simulation.checker.case import (
    EARLY,
    Case,
    Fact,
    Instance,
    content,
    ran_out,
    record,
    slot_of,
    token_of,
)

LATE = 6.0  # seconds after its end, or after its execution began, until a sleep is over


def sleeps_keep_their_deadline(case: Case, instance: Instance) -> Iterator[str]:
    """S12: a sleep has one deadline, fixed by the first that claims it, whoever resumes it."""
    hindered = {f.who for f in case.by_kind["happened"] if f.what.split()[0] in _HINDRANCES}
    for slept in instance.slept:
        claims = case.mutations.get(f"{instance.folder}/waits/{slept.name}")
        if not claims:
            yield f"{slept.name} is over and was never claimed"
            continue
        begun = {f.epoch: f for f in instance.sleeps if f.name == slept.name}
        first = begun[record(claims[0])["epoch"]]
        due = first.at + first.seconds
        # Code that blocks its process fixes the end before it says that it sleeps.
        if slept.at < due - EARLY and slept.who not in hindered:
            yield f"{slept.name} ended {due - slept.at:.1f} s early"
        late = slept.at - max(due, begun[slept.epoch].at)
        if late > LATE and slept.who not in hindered and not case.by_kind["fault"]:
            yield f"{slept.name} ended {late:.1f} s late in {slept.who}"


_HINDRANCES = {"stopped", "suspended", "blocked"}


def inboxes_are_chains(_: Case, instance: Instance) -> Iterator[str]:
    """P9: decisions are numbered without gaps; each wait is decided once."""
    numbers = sorted(instance.takes)
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"the takes are {numbers}"
    for path, times in Counter(record(f)["path"] for f in instance.takes.values()).items():
        if times > 1:
            yield f"{path} was decided {times} times"


def events_reach_one_wait(_: Case, instance: Instance) -> Iterator[str]:
    """P9, S11: an event reaches at most one wait, in the order in which they were sent.

    One that was taken by a wait which a decision closed before it was handed over is free again.
    The decision may be recorded before or after: what it closes is closed as soon as it is known.
    """
    takes = [(record(fact), fact) for _, fact in sorted(instance.takes.items())]
    deciding = (take["path"] for take, _ in takes if take["kind"] not in {"event", "sleep"})
    around = tuple({path.rpartition("/")[0] for path in deciding})
    taken: dict[str, list[Fact]] = defaultdict(list)
    takers: dict[int, str] = {}
    freed = set[str]()
    for take, fact in takes:
        if not take.get("event"):
            continue
        name = f"{take['name'].removeprefix('event-')}/{take['event']}"
        event = instance.events.get(name)
        if event is None or event.order > fact.order:
            yield f"{take['path']} took {name}, which had not been sent"
            continue
        if event.order in takers and takers[event.order].startswith(around):
            freed.add(take["name"])
        else:
            taken[take["name"]].append(event)
        takers[event.order] = take["path"]
    for name, found in taken.items():
        orders = [event.order for event in found]
        if orders != sorted(set(orders)) and name not in freed:
            yield f"events of {name} were taken as {[e.name.rsplit('/', 1)[-1] for e in found]}"
    for epoch, facts in instance.received.items():
        told = Counter(str(f.what) for f in facts if str(f.what).startswith("event "))
        for what, times in told.items():
            if times > 1:
                yield f"epoch {epoch} was handed {what!r} {times} times"


def received_events_are_recorded(_: Case, instance: Instance) -> Iterator[str]:
    """P1: an event's value reaches the code after it is recorded which wait got it."""
    values = {str(record(f).get("value")): f for f in instance.takes.values()}
    for epoch, facts in instance.received.items():
        for fact in facts:
            if str(fact.what).startswith("event "):
                take = values.get(str(fact.what).removeprefix("event "))
                if take is None or take.order > fact.order:
                    yield f"epoch {epoch} was handed {fact.what!r}, which no take records"


def cancelled_runs_were_asked_to(case: Case, instance: Instance) -> Iterator[str]:
    """S15: a run is cancelled on request alone; who has read of it begins nothing new."""
    for result in instance.results:
        cancelled = record(result)["status"] == "cancelled"
        if cancelled and (instance.cancel is None or instance.cancel.order > result.order):
            yield "it was cancelled, and nobody had asked for it"
    if instance.cancel is None:
        return
    for body in instance.bodies:
        claim = instance.epochs.get(body.epoch)
        # Random programs catch the cancellation and clean up as they like.
        if claim is None or body.slot.startswith("undo-") or "@" in body.slot:
            continue
        listed = case.listed_before(claim.order, body.who, instance.run)
        if listed is not None and listed.order > instance.cancel.order:
            yield f"{body.slot} began in epoch {body.epoch}, which knew of the cancellation"


def clients_are_told_of_cancels(case: Case, instance: Instance) -> Iterator[str]:
    """S15: a client is told `finished` only of a run that is over."""
    for reply in case.by_kind["reply"]:
        if reply.what != "cancel" or reply.run != instance.run or not reply.is_.get("value"):
            continue
        ended = [r for r in instance.results if r.order < reply.order]
        if reply.value == "finished" and not ended:
            yield f"{reply.who} was told `finished` before it was over"
        if reply.value == "requested" and instance.cancel is None:
            yield f"{reply.who} was told `requested`, and nothing is stored"


def undone_in_reverse(_: Case, instance: Instance) -> Iterator[str]:
    """A run that did not complete undoes what it did, the last first; one that did, nothing."""
    for result in instance.results:
        done = [b for b in instance.bodies if b.slot.startswith("book")]
        undone = [b for b in instance.bodies if b.slot.startswith("undo-book")]
        if record(result)["status"] == "completed":
            if undone:
                yield f"it completed, and undid {[b.slot for b in undone]}"
            continue
        recorded = {slot_of(content(record(f))) for f in instance.steps.values()}
        slots = list(dict.fromkeys(b.slot for b in done))
        for slot in slots:
            if f"undo-{slot}" not in recorded:
                yield f"{slot} was done and not undone"
        # What was registered, and not begun when its owner died, is undone too.
        order = [
            s for s in dict.fromkeys(b.slot.removeprefix("undo-") for b in undone) if s in slots
        ]
        if order != [slot for slot in reversed(slots) if slot in order]:
            yield f"{slots} were undone in the order {order}"


def deadlines_cut_off(case: Case, instance: Instance) -> Iterator[str]:
    """S12: a run fails for its deadline when that has passed, and never completes after it."""
    start = case.starts.get(instance.id)
    deadline = record(start).get("deadline", 0) if start is not None else 0
    for fact in instance.results:
        result = record(fact)
        if ran_out(result) and not 0 < deadline <= result["time"]:
            yield f"it failed for its deadline {deadline} at {result['time']}"
        if deadline and result["status"] == "completed" and result["time"] > deadline + LATE:
            yield f"it completed {result['time'] - deadline:.1f} s after its deadline"


def at_most_once(_: Case, instance: Instance) -> Iterator[str]:
    """S17: such a body never begins twice, whoever dies."""
    begun = Counter((b.slot, b.attempt) for b in instance.bodies if b.slot.startswith("once-"))
    for (slot, attempt), times in begun.items():
        if times > 1:
            yield f"attempt {attempt} of {slot} began {times} times"


def children_are_told_as_recorded(case: Case) -> Iterator[str]:
    """S14: a parent sees the recorded end of its child, and of each call one child."""
    results = [str(record(f)["value"]) for i in case.instances.values()
               for f in i.results if "value" in record(f)]  # fmt: skip
    for told in case.by_kind["child"]:
        if str(told.value) not in results:
            yield f"run {told.run!r} was told {told.value!r} of a child, which no result says"
    done = Counter(b.slot for i in case.instances.values() for b in i.bodies
                   if b.slot.startswith("child-") and b.token in _recorded(i))  # fmt: skip
    for slot, times in done.items():
        if times > 1:
            yield f"{slot} was recorded {times} times: the call started more than one child"


def _recorded(instance: Instance) -> set[str]:
    return {content(record(fact)) for fact in instance.steps.values()}


def values_belong_to_their_calls(case: Case) -> Iterator[str]:
    """S10: a recorded value is never handed to another call than the one it was recorded for."""
    for called in case.by_kind["called"]:
        if slot_of(token_of(called.what)) != called.slot:
            yield f"{called.slot} of run {called.run!r} was handed {called.what!r}"


FEATURE_RULES: list[Callable[[Case, Instance], Iterator[str]]] = [
    sleeps_keep_their_deadline,
    inboxes_are_chains,
    events_reach_one_wait,
    received_events_are_recorded,
    cancelled_runs_were_asked_to,
    clients_are_told_of_cancels,
    undone_in_reverse,
    deadlines_cut_off,
    at_most_once,
]

CASE_RULES: list[Callable[[Case], Iterator[str]]] = [
    children_are_told_as_recorded,
    values_belong_to_their_calls,
]
