"""The checker of crash runs, checked: a whole story passes, each planted fault is found."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.checker import check
from tests.crash.evidence import (
    BodyLine,
    EnterLine,
    Evidence,
    Fence,
    LeaseSeen,
    Process,
    ReceivedLine,
    Story,
)
from tests.crash.rules import RULES
from tests.crash.run_rules import RUN_RULES
from tests.crash.store import Object
from tests.crash.violations import Violation

FOLDER = "runs/as_they_come%2F0/0a/"
SLOTS = ["racer-1", "walker", "racer-0", "last"]  # in the order of their records
EMPTY = hashlib.sha256(b"").hexdigest()


def good() -> Evidence:
    """w1 is killed after two of four calls; w2 takes over by the lock and finishes.

    The outcomes of the first epoch are at 11 and 12, the death is at 13, the rest at 15 and 16.
    A body of the third call was in flight at the death and ran again.
    """
    w1 = Process("w1", private=False, pid=1, killed=13.0)
    w2 = Process("w2", private=False, pid=2, drained=20.0, exit_code=0)
    lease = LeaseSeen("A", "w1", ttl=12.0, margin=2.0, alive=10.0, dead=13.5)
    story = Story(7, 0.0, {"as_they_come/0": ("as_they_come", 1)}, {"w1": w1, "w2": w2})
    story.leases["A"] = lease
    evidence = Evidence(story, fences=[Fence("A", "lock", "w2")])
    evidence.entered = [_enter(1, "w1", 10.5), _enter(2, "w2", 14.5)]
    evidence.bodies = [
        _body(SLOTS[0], 1, "w1", 11.0), _body(SLOTS[1], 1, "w1", 12.0),
        dataclasses.replace(_body(SLOTS[2], 1, "w1", 12.9), token="f" * 16),
        _body(SLOTS[2], 2, "w2", 15.0), _body(SLOTS[3], 2, "w2", 16.0),
    ]  # fmt: skip
    for epoch, process, at in ((1, "w1", 12.5), (2, "w2", 16.5)):
        count = 2 if epoch == 1 else 4
        evidence.received += [_received(epoch, i, process, at) for i in range(count)]
    evidence.objects = [
        _object("history/2026-11-29/19/x", 17.1, run="as_they_come/0", status="completed"),
        _object(f"{FOLDER}epochs/2", 14.0, epoch=2, why="takeover", seen={"1": [2, []]}),
        _result(),
        *[_step(i) for i in range(4)],
        _object("runs/as_they_come%2F0/start", 10.0, workflow="as_they_come"),
        _object("workers/A", 13.5, worker="A", label="w1", state="dead"),
    ]
    return evidence


def _token(slot: str) -> str:
    return hashlib.sha256(slot.encode()).hexdigest()[:16]


def _object(name: str, created: float, **body: Any) -> Object:
    return Object(name, created, created, {}, body)


def _step(index: int, **more: Any) -> Object:
    slot = SLOTS[index]
    epoch, n = (1, index + 1) if index < 2 else (2, index - 1)
    value = {"slot": slot, "token": _token(slot), "blob": ""}
    record = {"path": f"work.{index}", "outcome": "value", "epoch": epoch, "n": n, "value": value}
    return _object(f"{FOLDER}steps/work.{index}", [11.1, 12.1, 15.1, 16.1][index], **record | more)


def _result(order: list[str] = SLOTS) -> Object:
    value = [{"slot": slot, "token": _token(slot)} for slot in order]
    return _object(f"{FOLDER}result", 17.0, status="completed", epoch=2, value=value)


def _enter(epoch: int, process: str, at: float) -> EnterLine:
    return EnterLine("as_they_come/0", epoch, process, at)


def _body(slot: str, epoch: int, process: str, at: float) -> BodyLine:
    return BodyLine(
        "as_they_come/0", slot, f"key of {slot}", epoch, 1, _token(slot), "value", process,
        began=at - 0.1, at=at,
    )  # fmt: skip


def _received(epoch: int, index: int, process: str, at: float) -> ReceivedLine:
    slot = SLOTS[index]
    return ReceivedLine(
        "as_they_come/0", epoch, index, slot, _token(slot), "value", EMPTY, process, at
    )


def test_a_whole_story_has_no_violations() -> None:
    """A kill, a takeover and one repeated body in flight are as they may be, and counted."""
    verdict = check(good())

    assert verdict.violations == []
    assert verdict.summary() == (
        "crash: kills=1 zombies=0 runs=1 changed=0 lost=0 repeated=1 by_lock=1 by_ttl=0"
    )


def test_a_late_record_of_a_zombie_is_no_violation() -> None:
    """w1 was only stopped: what it records after the takeover ends the epoch that meets it."""
    evidence = good()
    w1 = evidence.story.processes["w1"]
    w1.killed, w1.stops, w1.wakes = 0.0, [13.0], [14.9]
    evidence.story.leases["A"].alive = -1.0
    evidence.fences = [Fence("A", "ttl", "w2")]
    _land_late(evidence)

    verdict = check(evidence)
    assert verdict.violations == []
    assert (verdict.zombies, verdict.late_records, verdict.repeated) == (1, 1, 1)


def test_what_a_dead_owner_had_sent_may_land_late() -> None:
    """A request under way at the death of its sender is carried out, and counts."""
    evidence = good()
    _land_late(evidence)

    verdict = check(evidence)
    assert verdict.violations == []
    assert (verdict.kills, verdict.late_records, verdict.repeated) == (1, 1, 1)


def _land_late(evidence: Evidence) -> None:
    """The third call's record of the first epoch lands in the middle of the second."""
    slot, token = SLOTS[2], "f" * 16
    late = {"slot": slot, "token": token, "blob": ""}
    _replace_object("work.2", epoch=1, n=3, value=late)(evidence)
    _replace_object("work.3", epoch=3, n=1)(evidence)
    _add_object(f"{FOLDER}epochs/3", epoch=3, why="late", seen={"1": [3, []]})(evidence)
    evidence.entered.append(_enter(3, "w2", 15.3))
    evidence.bodies[4] = dataclasses.replace(evidence.bodies[4], epoch=3)
    evidence.received[4:] = []
    for index in range(4):
        line = _received(3, index, "w2", 16.5)
        told = token if index == 2 else line.token
        evidence.received.append(dataclasses.replace(line, token=told))
    result = [{"slot": s, "token": token if s == slot else _token(s)} for s in SLOTS]
    _replace_object("result", epoch=3, value=result)(evidence)


def _replace_object(name: str, **body: Any) -> Callable[[Evidence], None]:
    def plant(evidence: Evidence) -> None:
        for i, stored in enumerate(evidence.objects):
            if stored.name.endswith(name):
                evidence.objects[i] = dataclasses.replace(stored, body=stored.body | body)

    return plant


def _remove_object(name: str) -> Callable[[Evidence], None]:
    def plant(evidence: Evidence) -> None:
        evidence.objects = [o for o in evidence.objects if not o.name.endswith(name)]

    return plant


def _add_object(name: str, **body: Any) -> Callable[[Evidence], None]:
    def plant(evidence: Evidence) -> None:
        evidence.objects.append(_object(name, 17.2, **body))

    return plant


def _replace_line(log: str, index: int, **fields: Any) -> Callable[[Evidence], None]:
    def plant(evidence: Evidence) -> None:
        lines = getattr(evidence, log)
        lines[index] = dataclasses.replace(lines[index], **fields)

    return plant


def _swap_received(evidence: Evidence) -> None:
    """The second execution receives the first two outcomes the other way round."""
    one, two = evidence.received[2:4]
    evidence.received[2:4] = [
        dataclasses.replace(two, index=0), dataclasses.replace(one, index=1)
    ]  # fmt: skip


def _other_order(evidence: Evidence) -> None:
    """... and its result says so: consistent, but not what the first one saw."""
    _swap_received(evidence)
    evidence.objects[2] = _result([SLOTS[1], SLOTS[0], *SLOTS[2:]])


def _against_the_record(evidence: Evidence) -> None:
    """Both executions and the result agree, but the records say another order."""
    _other_order(evidence)
    one, two = evidence.received[:2]
    evidence.received[:2] = [dataclasses.replace(two, index=0), dataclasses.replace(one, index=1)]


def _rerun(slot: str, at: float) -> Callable[[Evidence], None]:
    def plant(evidence: Evidence) -> None:
        again = dataclasses.replace(_body(slot, 2, "w2", at), token="e" * 16)
        evidence.bodies.append(again)

    return plant


def _forget_death(evidence: Evidence) -> None:
    evidence.story.processes["w1"].killed = 0.0


def _two_owners(evidence: Evidence) -> None:
    evidence.entered.append(_enter(1, "w2", 14.4))


def _fenced_early(evidence: Evidence) -> None:
    evidence.fences[0] = Fence("A", "ttl", "w2")


def _zombie_starts_bodies(evidence: Evidence) -> None:
    """w1 was only stopped; after it was fenced it started two more bodies."""
    evidence.story.processes["w1"].killed = 0.0
    evidence.story.processes["w1"].stops = [13.0]
    evidence.bodies += [
        dataclasses.replace(_body("racer-0", 1, "w1", 18.0 + i), token=f"{i:016}") for i in (0, 1)
    ]


def _trouble(evidence: Evidence) -> None:
    evidence.story.troubles.append("worker w2 did not end")


SAME_SLOT = {"slot": "racer-1", "token": _token("racer-1"), "blob": ""}
PLANTED: dict[str, tuple[str, Callable[[Evidence], None]]] = {
    "another value was received than recorded": (
        "received_is_recorded",
        _replace_line("received", 3, token="d" * 16),
    ),
    "damage to a received value": (
        "received_is_recorded",
        _replace_line("received", 0, proof="0" * 64),
    ),
    "damage to a recorded value": (
        "records_are_as_expected",
        _replace_object("work.0", value=SAME_SLOT | {"blob": "other"}),
    ),
    "a record that no body returned": (
        "records_are_what_bodies_returned",
        _replace_object("work.3", value=SAME_SLOT | {"slot": "last"}),
    ),
    "two records of one call": (
        "one_record_for_each_call",
        _replace_object("work.2", value=SAME_SLOT),
    ),
    "two records with one order number": (
        "one_record_for_each_call",
        _replace_object("work.1", n=1),
    ),
    "a record under another path": (
        "one_record_for_each_call",
        _replace_object("work.1", path="work.9"),
    ),
    "a record of another epoch than its body": (
        "records_are_what_bodies_returned",
        _replace_object("work.1", epoch=2, n=9),
    ),
    "a lost record": ("records_are_as_expected", _remove_object("work.3")),
    "a call that the workflow does not make": (
        "records_are_as_expected",
        _add_object(
            f"{FOLDER}steps/x",
            path="x",
            outcome="value",
            epoch=2,
            n=7,
            value={"slot": "x", "token": "c" * 16, "blob": ""},
        ),
    ),
    "another order on replay": ("executions_agree", _other_order),
    "another order than recorded": ("received_in_the_right_order", _against_the_record),
    "a result that its epoch did not see": ("results_follow_from_records", _swap_received),
    "a lost result": ("each_run_ends_once", _remove_object("result")),
    "the wrong outcome": ("each_run_ends_once", _replace_object("result", status="failed")),
    "no history": ("each_run_ends_once", _remove_object("19/x")),
    "history twice": (
        "each_run_ends_once",
        _add_object("history/2026-11-29/19/y", run="as_they_come/0", status="completed"),
    ),
    "a second instance": (
        "each_run_ends_once",
        _add_object("runs/as_they_come%2F0/0b/epochs/2", epoch=2, why="takeover"),
    ),
    "two owners of one epoch": ("epochs_rise", _two_owners),
    "an epoch without its claim": ("epochs_rise", _remove_object("epochs/2")),
    "a gap between epochs": (
        "epochs_rise",
        _add_object(f"{FOLDER}epochs/4", epoch=4, why="takeover"),
    ),
    "a recorded body that ran again": ("nothing_recorded_runs_again", _rerun(SLOTS[0], 14.8)),
    "a body that ran again without a death": ("repetitions_have_reasons", _rerun(SLOTS[2], 15.5)),
    "a second attempt without a failed first": (
        "attempts_follow_failures",
        _replace_line("bodies", 4, attempt=2),
    ),
    "one key for two calls": ("keys_name_calls", _replace_line("bodies", 4, key="key of walker")),
    "a fence before its time": ("fences_are_justified", _fenced_early),
    "a fence by lock of a process that lives": ("fences_are_justified", _forget_death),
    "bodies started by a zombie": ("fenced_owners_start_nothing", _zombie_starts_bodies),
    "a marker left": ("nothing_is_left", _add_object("live/default/12345678-as_they_come%2F0")),
    "a run that needs attention": ("nothing_is_left", _add_object("attention/default/r", run="r")),
    "a lease left": ("nothing_is_left", _add_object("workers/B", worker="B", label="w2")),
    "a presence left": ("nothing_is_left", _add_object("presence/B", worker="B", label="w2")),
    "an unknown object": ("nothing_is_left", _add_object("tmp/x")),
    "a run that nobody started": ("nothing_is_left", _add_object("runs/r/start")),
    "something that did not come in time": ("nothing_was_missing", _trouble),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    """Each fault that the checker is for is reported by the rule that is for it."""
    rule, plant = PLANTED[fault]
    evidence = good()
    plant(evidence)

    found: list[Violation] = check(evidence).violations
    assert rule in {violation.rule for violation in found}, found


def test_every_rule_has_a_planted_fault() -> None:
    """A rule that nothing can trip would be no rule; the bound on repetitions needs hundreds."""
    rules = {rule.__name__ for rule in [*RULES, *RUN_RULES]}
    assert rules - {rule for rule, _ in PLANTED.values()} == {"repetitions_are_few"}


def test_the_summary_counts_runs_not_violations() -> None:
    """One run with several changed values counts once."""
    evidence = good()
    _replace_line("received", 0, token="d" * 16)(evidence)
    _replace_line("received", 3, token="d" * 16)(evidence)

    assert " changed=1 lost=0 " in check(evidence).summary()
