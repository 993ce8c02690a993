"""The rules of starts that are held back until they have been quiet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.simulation.checker.case import EARLY, EPOCH, Case, Fact, record

BEGINS_SECONDS = 6.0  # within which a run that is due begins, if nothing goes wrong


class _Asked(NamedTuple):
    """One request: between the first time it was made and the first time it was acknowledged."""

    since: int
    told: int | None


def no_start_is_lost(case: Case) -> Iterator[str]:
    """P4: a start that returned is carried out, or one that was not before it is, after it came."""
    if case.left is None:
        return
    asked = _asked(case)
    carried = _carried(case)
    for (key, number), mine in asked.items():
        if mine.told is None or (key, number) in carried:
            continue
        others = (
            (there, order)
            for other, order in carried.items()
            if other[0] == key and (there := asked.get(other)) is not None
        )
        if not any(
            order > mine.since and (there.told is None or there.told > mine.since)
            for there, order in others
        ):
            yield f"start {number} of {key!r} returned; neither it nor a later one was carried out"


def _asked(case: Case) -> dict[tuple[str, int], _Asked]:
    found: dict[tuple[str, int], _Asked] = {}
    for fact in (*case.by_kind["asked"], *case.by_kind["reply"]):
        what, *rest = str(fact.what).split()
        if what != "held":
            continue
        key, number = rest[0], int(rest[1])
        before = found.get((key, number))
        if before is None:
            found[key, number] = _Asked(fact.order, None)
        elif before.told is None and fact.kind == "reply" and fact.is_.get("value"):
            found[key, number] = before._replace(told=fact.order)
    return found


def _carried(case: Case) -> dict[tuple[str, int], int]:
    """Requests that runs begun to carry out: where in the history the last of them first did."""
    begun: dict[tuple[str, str, int], Fact] = {}
    for fact in case.by_kind["carried"]:
        begun.setdefault((fact.key, fact.debounce, fact.number), fact)
    found: dict[tuple[str, int], int] = defaultdict(int)
    for (_, key, number), fact in begun.items():
        found[key, number] = max(found[key, number], fact.order)
    return found


def held_starts_begin_in_time(case: Case) -> Iterator[str]:
    """However many come, the run is due at most `debounce_max` after the first, and begins then."""
    disturbed = case.by_kind["fault"] or any(
        fact.what.split()[0] not in {"starts,", "ended", "told"}
        for fact in case.by_kind["happened"]
    )
    # Beside other runs it waits for a worker with room.
    disturbed = disturbed or not all(record(f).get("debounce") for f in case.starts.values())
    for id_, first in case.starts.items():
        held = record(first).get("debounce")
        if held is None:
            continue
        instance = case.instances[id_]
        asked = [f.at for f in case.by_kind["asked"] if f.what == _what(record(first))]
        created = record(first)["created"] - EPOCH
        if not min(asked) - EARLY < created < first.at + EARLY:
            yield f"run {instance.run!r} says that it was started at {created:.1f} s"
        for fact in case.mutations[first.name]:
            said = record(fact).get("debounce") or held
            if record(fact).get("instance") != id_:
                continue
            if said["latest"] != held["latest"] or said["due"] > held["latest"]:
                yield f"{fact.who} held run {instance.run!r} back for longer than it may be"
        late = instance.enters and instance.enters[0].at - (held["latest"] - EPOCH)
        if late and late > BEGINS_SECONDS and not disturbed:
            yield f"run {instance.run!r} began {late:.1f} s too late"


def _what(start: dict[str, Any]) -> str:
    """What a client said that it asks for."""
    key, number = start["input"]["args"]
    return f"held {key} {number}"


def requests_change_while_they_are_held_back(case: Case) -> Iterator[str]:
    """P4, S7: once a run is closed, what it was asked to do stays as it is."""
    for name, facts in case.mutations.items():
        if not (name.startswith("runs/") and name.endswith("/start")):
            continue
        closed: dict[str, object] = {}
        for fact in facts:
            said = record(fact)
            debounce = said.get("debounce")
            if debounce is None:
                continue
            before = closed.get(said["instance"])
            if before is not None and before != said["input"]:
                yield f"{fact.who} changed what {name} asks for, which had begun"
            if debounce.get("closed"):
                closed[said["instance"]] = said["input"]


HELD_RULES: list[Callable[[Case], Iterator[str]]] = [
    no_start_is_lost,
    held_starts_begin_in_time,
    requests_change_while_they_are_held_back,
]
