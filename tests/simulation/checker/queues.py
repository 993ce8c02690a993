"""The rules of limited queues: how many at a time, in which order, how many in a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.simulation.checker.case import Case, Fact, Instance, Stay, record, stays

SOON = 5.0  # seconds within which a look at a line is acted upon, if nothing goes wrong
ANYWAY = 60.0  # ... whatever goes wrong
MOMENT = 0.002  # seconds
KNOWN_SECONDS = 75.0  # within which every worker knows of a pause


def _name(*parts: str) -> str:
    return "/".join(["queues", *parts])


def _settings(case: Case, queue: str) -> dict[str, Any]:
    facts = case.mutations.get(_name(queue, "settings"), [])
    return record(facts[-1]) if facts else {}


def _owner(slot: dict[str, Any]) -> tuple[str, str]:
    return slot.get("run", ""), slot.get("instance", "")


def _slots(case: Case) -> Iterator[tuple[str, str, list[Fact]]]:
    """Each slot: its queue, its name, what became of it."""
    for name, facts in case.mutations.items():
        parts = name.split("/")
        if parts[0] == "queues" and parts[2] == "slots":
            yield parts[1], name, facts


def _grants(case: Case) -> Iterator[tuple[str, str, Fact]]:
    """Each time that a slot came to name an instance that it did not name.

    A write that lands once more, late, gives nothing: it was judged when it first landed.
    """
    for queue, name, facts in _slots(case):
        before: tuple[str, str] = "", ""
        written: set[str] = set()
        for fact in facts:
            said = {} if fact.verb == "delete" else record(fact)
            owner, nonce = _owner(said), said.get("nonce", "")
            if owner[0] and owner != before and nonce not in written:
                yield queue, name, fact
            before = owner
            written.add(nonce)


def slots_are_never_exceeded(case: Case) -> Iterator[str]:
    """S21: there are as many slots as the queue may have runs at a time."""
    for queue, name, fact in _grants(case):
        limit = _settings(case, queue).get("concurrency")
        if limit is not None and int(name.rsplit("/", 1)[-1]) >= limit:
            yield f"{fact.who} made {name} of {limit}"


def bodies_need_their_slot(case: Case, instance: Instance) -> Iterator[str]:
    """S21: a run of a limited queue runs bodies while a slot names it, or to clean up."""
    start = case.starts.get(instance.id)
    if start is None or not record(start).get("limited") or not case.keeps_p11:
        return
    queue = record(start)["queue"]
    held = [stay for of, _, facts in _slots(case) if of == queue for stay in stays(facts)
            if _owner(record(stay.since)) == (instance.run, instance.id)]  # fmt: skip
    for body in instance.bodies:
        cleans_up = instance.cancel is not None and instance.cancel.order < body.order
        if not cleans_up and not any(stay.covers(body.order) for stay in held):
            yield f"{body.slot} began without a slot of queue {queue!r}"


def slots_are_taken_from_nobody(case: Case) -> Iterator[str]:
    """A slot of a run that goes on is given up by a worker that had the run under it, if by any.

    As it stands: a later owner of the run relies on it only once it has written it anew.
    """
    holders = _holders(case)
    all_stays = [(n, s) for _, n, facts in _slots(case) for s in stays(facts)]
    for queue, name, facts in _slots(case):
        for before, fact in pairwise(facts):
            owner = ("", "") if before.verb == "delete" else _owner(record(before))
            keeps = fact.verb != "delete" and _owner(record(fact)) == owner
            if not owner[0] or keeps or case.is_over(*owner, fact.order):
                continue
            if case.named_at(owner[0], fact.order) not in {"", owner[1]}:
                continue  # whoever started it died, and it was started anew: it never runs
            if fact.verb == "delete" and fact.who == before.who:
                continue  # whoever made one too many takes it back, as it was made
            doubled = any(
                n != name and _owner(record(s.since)) == owner and s.covers(fact.order)
                for n, s in all_stays
            )
            if not doubled and not _had(holders.get(owner[0], []), fact.who, Stay(before, fact)):
                yield f"{fact.who} took {name} from run {owner[0]!r} of queue {queue!r}"


def _holders(case: Case) -> dict[str, list[tuple[str, Stay]]]:
    """By run: which process had its marker, and when.

    The instance in a marker is a hint: it may be of a start whose client died.
    """
    labels: dict[str, str] = {}
    for name, facts in case.mutations.items():
        if name.startswith("workers/"):
            said = [record(f)["label"] for f in facts if record(f).get("label")]
            labels[name.removeprefix("workers/")] = said[0] if said else ""
    found: dict[str, list[tuple[str, Stay]]] = {}
    for name, facts in case.mutations.items():
        if name.startswith("live/"):
            for stay in stays(facts):
                marker = record(stay.since)
                who = labels.get(marker.get("holder", ""), "")
                found.setdefault(marker["run"], []).append((who, stay))
    return found


def _had(markers: list[tuple[str, Stay]], who: str, slot: Stay) -> bool:
    return any(
        holder == who
        and (slot.until is None or stay.since.order < slot.until.order)
        and (stay.until is None or stay.until.order > slot.since.order)
        for holder, stay in markers
    )


def turns_are_kept(case: Case) -> Iterator[str]:
    """A free slot goes to the first in line: by priority, then by the time of the start."""
    hindered = {f.who for f in case.by_kind["happened"]
                if f.what.split()[0] in {"stopped", "suspended", "blocked"}}  # fmt: skip
    seen = ANYWAY if case.by_kind["fault"] else SOON
    lines = {n: stays(f) for n, f in case.mutations.items() if "/pending/" in n}
    for queue, name, fact in _grants(case):
        taker = _owner(record(fact))
        turn = _turn(case, taker)
        if fact.who in hindered or turn is None:
            continue
        # The place of a start whose client died before it was told is the run's place as well.
        earlier = [
            record(s.since)["created"]
            for stood in lines.values()
            for s in stood
            if record(s.since)["run"] == taker[0] and s.covers(fact.order)
        ]
        turn = turn._replace(created=min([turn.created, *earlier]))
        for place, stood in lines.items():
            waiter = _owner(record(stood[0].since))
            theirs = _turn(case, waiter)
            if (
                not place.startswith(f"queues/{queue}/")
                or theirs is None
                or not theirs.is_before(turn)
            ):
                continue
            waits = [s for s in stood if s.covers(fact.order) and s.since.at < fact.at - seen]
            if waits and not _served(case, waiter, waits[0].since, fact):
                yield f"run {taker[0]!r} got {name}; run {waiter[0]!r} stood first in line"


class _Turn(NamedTuple):
    priority: int
    created: float

    def is_before(self, other: _Turn) -> bool:
        """Starts within a moment of each other are in no order."""
        if self.priority != other.priority:
            return self.priority < other.priority
        return self.created < other.created - MOMENT


def _turn(case: Case, owner: tuple[str, str]) -> _Turn | None:
    start = case.starts.get(owner[1])
    if start is None:
        return None
    asked = record(start)
    return _Turn(asked.get("priority", 0), asked["created"])


def parked_runs_free_their_slots(case: Case) -> Iterator[str]:
    """A run that leaves its worker and is not over gives up the slot that it relied on.

    Unless it is to keep it. A second one, which was made in a race, is freed later.
    """
    for name, facts in case.mutations.items():
        queue = name.split("/")[1] if name.startswith("live/") else ""
        if not queue or _settings(case, queue).get("keep_slot"):
            continue
        for before, fact in pairwise(facts):
            owner = _owner(record(before)) if fact.verb == "delete" else ("", "")
            if owner[1] in case.instances and not case.is_over(*owner, fact.order):
                held = _held(case, queue, owner, fact.order)
                if held and all(stay.covers(fact.order) for stay in held):
                    yield f"run {owner[0]!r} was parked and kept {held[0].since.name}"


def _held(case: Case, queue: str, owner: tuple[str, str], order: int) -> list[Stay]:
    """The slots that named the instance when it ran its last body before."""
    ran = [b.order for b in case.instances[owner[1]].bodies if b.order < order]
    return [
        stay
        for of, _, facts in _slots(case)
        for stay in stays(facts)
        if of == queue and ran and stay.covers(max(ran)) and _owner(record(stay.since)) == owner
    ]


def _served(case: Case, waiter: tuple[str, str], stood: Fact, fact: Fact) -> bool:
    """Whether whoever stood in line had no need of a slot any more.

    It has one, or is over; or it was given one from this very place, which whoever gave it has
    not removed yet, and sleeps now.
    """
    if case.is_over(*waiter, fact.order) or case.named_at(waiter[0], fact.order) != waiter[1]:
        return True
    return any(
        _owner(record(stay.since)) == waiter
        and (stay.covers(fact.order) or stood.order < stay.since.order < fact.order)
        for _, _, facts in _slots(case)
        for stay in stays(facts)
    )


def rates_are_kept(case: Case) -> Iterator[str]:
    """Each slot that is given was counted before, and of those counted no more than may be."""
    granted: dict[str, list[Fact]] = {}
    for queue, _, fact in _grants(case):
        granted.setdefault(queue, []).append(fact)
    for queue, grants in granted.items():
        rate = _settings(case, queue).get("rate")
        if rate is None:
            continue
        counted: list[tuple[int, float]] = []
        for fact in case.mutations.get(_name(queue, "rate"), []):
            times = record(fact)["times"]
            known = [moment for _, moment in counted][-len(times) :]
            more = next(k for k in range(len(times) + 1) if _ends_with(known, times, k))
            counted += [(fact.order, moment) for moment in times[len(times) - more :]]
        moments = sorted(moment for _, moment in counted)
        for first, last in zip(moments, moments[int(rate[0]) :], strict=False):
            if last - first < rate[1]:
                yield f"queue {queue!r} counted {rate[0]} starts and one more in {last - first:g} s"
        orders = [order for order, _ in counted]
        for number, fact in enumerate(sorted(grants, key=lambda f: f.order), start=1):
            if bisect_left(orders, fact.order) < number:
                yield f"{fact.who} gave {fact.name}, the {number}th slot, without counting it"


def _ends_with(known: list[float], times: list[float], more: int) -> bool:
    kept = times[: len(times) - more]
    return kept == known[len(known) - len(kept) :]


def pauses_are_kept(case: Case) -> Iterator[str]:
    """While a queue or a workflow is paused no run of it begins, once all workers know."""
    for stay in stays(case.mutations.get("pauses", [])):
        paused = record(stay.since)
        for instance in case.instances.values():
            start = case.starts.get(instance.id)
            if start is None or not instance.enters:
                continue
            asked, first = record(start), instance.enters[0]
            is_paused = asked.get("queue", "default") in paused.get("queues", []) or (
                asked["workflow"] in paused.get("workflows", [])
            )
            known = SOON if asked.get("limited") else KNOWN_SECONDS
            known = max(known, ANYWAY) if case.by_kind["fault"] else known
            if is_paused and stay.covers(first.order) and first.at > stay.since.at + known:
                yield f"run {instance.run!r} began {first.at - stay.since.at:.1f} s after the pause"


def no_slot_is_leaked(case: Case) -> Iterator[str]:
    """L9: at rest nobody has a slot, stands in line, or stands for a key."""
    for name in case.left or {}:
        parts = name.split("/")
        if parts[0] != "queues" or parts[2] in {"settings", "rate"}:
            continue
        last = case.mutations[name][-1]
        if case.landed_late(last):
            continue
        if parts[2] in {"keys", "debounce"}:
            request = record(last)["request"]
            started = f"runs/{quote(record(last)['run'], safe='.')}/start" in (case.left or {})
            if not started or not case.is_over(record(last)["run"], request["instance"], 1 << 60):
                continue  # its start was cut off; the next start with the key finishes it
        yield f"{name} is left"


QUEUE_RULES: list[Callable[[Case], Iterator[str]]] = [
    slots_are_never_exceeded,
    slots_are_taken_from_nobody,
    turns_are_kept,
    parked_runs_free_their_slots,
    rates_are_kept,
    pauses_are_kept,
    no_slot_is_leaked,
]
SLOT_RULES: list[Callable[[Case, Instance], Iterator[str]]] = [bodies_need_their_slot]
