"""Judges the evidence of a crash run. Shares nothing with durable but the words of its records.

Each rule is one function from evidence to violations; `RULES` lists them. The names of the
promises (P1, S9, ...) are those of the documentation.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from tests.crash.evidence import (
    BodyLine,
    EnterLine,
    Evidence,
    LeaseSeen,
    ReceivedLine,
    RunFolder,
)
from tests.crash.expected import Expected, expected
from tests.crash.store import Object, marked_run

SLACK = 1.0  # seconds between a fate and the clock reading that the harness took of it
IN_FLIGHT = 5.0  # seconds that the write of a record may take on a busy machine

Kind = Literal["changed", "lost", "repeated", "broken"]


@dataclass(frozen=True)
class Violation:
    """One thing that must not be.

    `kind`: `changed` (a value, an order or a result), `lost` (a run without its one outcome),
    `repeated` (a body that ran again without a reason), `broken` (any other promise).
    """

    kind: Kind
    run: str  # empty: it concerns no single run
    text: str


@dataclass
class Verdict:
    """Violations, and what happened in all."""

    kills: int = 0
    zombies: int = 0
    runs: int = 0
    repeated: int = 0
    by_lock: int = 0
    by_ttl: int = 0
    late_records: int = 0
    starved: int = 0
    slowest_takeover: float = 0.0
    violations: list[Violation] = field(default_factory=list)

    def summary(self) -> str:
        """The last line of a crash run."""
        changed, lost = (
            len({v.run for v in self.violations if v.kind == kind}) for kind in ("changed", "lost")
        )
        return (
            f"crash: kills={self.kills} zombies={self.zombies} runs={self.runs} "
            f"changed={changed} lost={lost} repeated={self.repeated} "
            f"by_lock={self.by_lock} by_ttl={self.by_ttl}"
        )


@dataclass(frozen=True)
class Record:
    """A recorded outcome, or a recorded failed attempt, as this checker reads it."""

    path: str
    slot: str
    token: str
    outcome: str
    proof: str  # of a value: the hash of its blob; of an error: its class
    epoch: int
    n: int
    attempt: int
    created: float


class Run:
    """Everything that is known about one run."""

    def __init__(self, name: str, workflow: str, width: int, folder: RunFolder) -> None:
        self.name = name
        self.folder = folder
        self.expected: Expected = expected(workflow, width)
        self.workflow = workflow
        self.bodies: list[BodyLine] = []
        self.received: dict[int, list[ReceivedLine]] = defaultdict(list)  # by epoch
        self.entered: dict[int, list[EnterLine]] = defaultdict(list)

    @cached_property
    def records(self) -> list[Record]:
        return [_record(path, stored) for path, stored in self.folder.steps.items()]

    @cached_property
    def failures(self) -> list[Record]:
        return [_record(path, stored) for (path, _), stored in self.folder.attempts.items()]

    @cached_property
    def by_slot(self) -> dict[str, Record]:
        return {record.slot: record for record in self.records}

    @cached_property
    def recorded_tokens(self) -> set[str]:
        return {record.token for record in [*self.records, *self.failures]}

    @property
    def result(self) -> dict[str, Any] | None:
        return self.folder.results[0].body if len(self.folder.results) == 1 else None

    def follows_late_record(self, epoch: int) -> bool:
        """Whether this epoch ended because a dead owner's record had landed late."""
        following = self.folder.epochs.get(epoch + 1)
        return following is not None and following.body["why"] == "late"


class Case:
    """The evidence, sorted by run."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.story = evidence.story
        folders = evidence.folders()
        self.unknown = sorted(folders.keys() - self.story.started.keys())
        self.runs = {
            run: Run(run, workflow, width, folders.get(run, RunFolder()))
            for run, (workflow, width) in self.story.started.items()
        }
        for body in evidence.bodies:
            self.runs[body.run].bodies.append(body)
        for line in evidence.received:
            self.runs[line.run].received[line.epoch].append(line)
        for enter in evidence.entered:
            self.runs[enter.run].entered[enter.epoch].append(enter)
        self._lost_leases: dict[str, list[LeaseSeen]] = defaultdict(list)
        for lease in self.story.leases.values():
            if lease.dead and self.outlived(lease):
                self._lost_leases[lease.process].append(lease)

    def outlived(self, lease: LeaseSeen) -> bool:
        """Whether its process was not dead yet when it was fenced: stopped, or starved."""
        killed = self.story.processes[lease.process].killed
        return not killed or killed > lease.dead

    def _lost_lease_at(self, process: str, at: float) -> float | None:
        """When a process lost the lease under which it worked at that time, if it did."""
        fenced = [lease.dead for lease in self._lost_leases[process] if at < lease.dead]
        return min(fenced) if fenced else None

    def fenced_at(self, run: Run, epoch: int) -> float | None:
        """When the owner of this epoch was fenced, if it may have gone on after that."""
        for enter in run.entered[epoch]:
            if (lost := self._lost_lease_at(enter.process, enter.at)) is not None:
                return lost
        return None

    def is_suspect(self, run: Run, epoch: int) -> bool:
        return self.fenced_at(run, epoch) is not None

    def lost_leases(self, process: str) -> list[LeaseSeen]:
        """Leases of a process that were fenced while it was stopped or starved."""
        return self._lost_leases[process]


def check(evidence: Evidence) -> Verdict:
    """Apply every rule."""
    case = Case(evidence)
    processes = evidence.story.processes.values()
    fences = Counter(fence.reason for fence in evidence.fences)
    verdict = Verdict(
        kills=sum(1 for p in processes if p.killed),
        zombies=sum(len(p.stops) for p in processes),
        runs=len(case.runs),
        repeated=sum(len(list(_repeated(run))) for run in case.runs.values()),
        by_lock=fences["lock"],
        by_ttl=fences["ttl"],
        late_records=sum(1 for run in case.runs.values() for _ in _late(case, run)),
        starved=sum(len(case.lost_leases(p.name)) for p in processes if not p.stops),
        slowest_takeover=max(
            (s.dead - s.alive for s in evidence.story.leases.values() if s.dead), default=0.0
        ),
    )
    for general in RULES:
        verdict.violations += general(case)
    for rule in RUN_RULES:
        for run in case.runs.values():
            verdict.violations += rule(case, run)
    return verdict


# -- records and bodies ---------------------------------------------------------------------------


def one_record_for_each_call(_: Case, run: Run) -> Iterable[Violation]:
    """P1: a path has one outcome, a slot one path, an order number one record."""
    for path, stored in [*run.folder.steps.items(), *_attempt_paths(run)]:
        if stored.body["path"] != path:
            yield Violation("broken", run.name, f"{stored.name} says it is {stored.body['path']!r}")
    for slot, times in Counter(r.slot for r in run.records).items():
        if times > 1:
            paths = [r.path for r in run.records if r.slot == slot]
            yield Violation("changed", run.name, f"slot {slot} is recorded at {paths}")
    for place, times in Counter((r.epoch, r.n) for r in run.records).items():
        if times > 1:
            yield Violation("broken", run.name, f"{times} records have the order number {place}")


def records_are_as_expected(_: Case, run: Run) -> Iterable[Violation]:
    """Each call of the workflow, and no other, has an outcome of the right kind."""
    want = run.expected
    for slot in (want.values.keys() | want.errors.keys()) - run.by_slot.keys():
        yield Violation("lost", run.name, f"slot {slot} has no record")
    for slot, record in run.by_slot.items():
        kind = "error" if slot in want.errors else "value"
        known = slot in want.values or slot in want.errors or slot in want.optional
        if not known or record.outcome != kind:
            yield Violation(
                "changed", run.name, f"{record.path}: unexpected {record.outcome} {slot}"
            )
    tried = Counter(record.slot for record in run.failures)
    for slot, failures in (want.values | want.errors).items():
        if tried[slot] != failures:
            text = f"slot {slot}: {tried[slot]} failed attempts are recorded, not {failures}"
            yield Violation("changed", run.name, text)


def records_are_what_bodies_returned(_: Case, run: Run) -> Iterable[Violation]:
    """Nothing is recorded that no body returned, in that epoch and at that attempt."""
    returned = {body.token: body for body in run.bodies}
    for record in [*run.records, *run.failures]:
        body = returned.get(record.token)
        if body is None:
            yield Violation("changed", run.name, f"{record.path}: no body returned {record.token}")
            continue
        said = (body.slot, body.outcome, body.epoch, body.attempt)
        if said != (record.slot, record.outcome, record.epoch, record.attempt):
            yield Violation("changed", run.name, f"{record.path}: recorded {record}, ran {body}")
        if body.at > record.created:
            yield Violation("broken", run.name, f"{record.path} was recorded before its body ended")


def keys_name_calls(_: Case, run: Run) -> Iterable[Violation]:
    """An idempotency key is the same for all executions of a call, and no other call has it."""
    pairs = {(body.slot, body.key) for body in run.bodies}
    for what, times in Counter(slot for slot, _ in pairs).items():
        if times > 1:
            yield Violation("broken", run.name, f"slot {what} was run under {times} keys")
    for what, times in Counter(key for _, key in pairs).items():
        if times > 1:
            yield Violation("broken", run.name, f"{times} slots share the key {what}")


# -- what workflows received ----------------------------------------------------------------------


def received_is_recorded(_: Case, run: Run) -> Iterable[Violation]:
    """P1: whatever any execution was handed equals the record."""
    for epoch, lines in run.received.items():
        for line in lines:
            record = run.by_slot.get(line.slot)
            given = (line.token, line.outcome, line.proof)
            if record is None:
                yield Violation(
                    "changed", run.name, f"epoch {epoch} received {line.slot}: no record"
                )
            elif given != (record.token, record.outcome, record.proof):
                text = f"epoch {epoch} received {given} for {line.slot}, recorded is {record}"
                yield Violation("changed", run.name, text)


def executions_agree(case: Case, run: Run) -> Iterable[Violation]:
    """S9: of any two executions, one received the beginning of what the other received."""
    longest: list[str] = []
    for epoch, lines in sorted(run.received.items()):
        if [line.index for line in lines] != list(range(len(lines))):
            yield Violation("broken", run.name, f"epoch {epoch}: lines missing or out of order")
        if case.is_suspect(run, epoch):
            continue
        slots = [line.slot for line in lines]
        common = min(len(slots), len(longest))
        if slots[:common] != longest[:common]:
            text = f"epoch {epoch} received {slots}, an earlier one {longest}"
            yield Violation("changed", run.name, text)
        longest = max(longest, slots, key=len)


def received_in_the_right_order(case: Case, run: Run) -> Iterable[Violation]:
    """The order is the one that the code, or the record, prescribes."""
    suspect = any(case.is_suspect(run, epoch) for epoch in run.entered)
    for epoch, lines in run.received.items():
        slots = [line.slot for line in lines]
        order = run.expected.order
        if order is not None and tuple(slots) != order[: len(slots)]:
            yield Violation("changed", run.name, f"epoch {epoch} received {slots}, not {order}")
        if not run.expected.in_record_order or suspect or not run.by_slot.keys() >= set(slots):
            continue
        recorded = [(run.by_slot[slot].epoch, run.by_slot[slot].n) for slot in slots]
        if recorded != sorted(recorded):
            text = f"epoch {epoch} received {slots} in the order {recorded} of the records"
            yield Violation("changed", run.name, text)


# -- outcomes -------------------------------------------------------------------------------------


def each_run_ends_once(case: Case, run: Run) -> Iterable[Violation]:
    """P2, P4: one instance, one result of the right kind, one entry in the history."""
    if len(run.folder.instances) > 1 or run.folder.start is None:
        yield Violation("broken", run.name, f"instances {run.folder.instances}, not one")
    for name in run.folder.strangers:
        yield Violation("broken", run.name, f"{name} does not belong there")
    if run.result is None:
        yield Violation("lost", run.name, f"it has {len(run.folder.results)} results")
        return
    status = "failed" if run.expected.fails else "completed"
    entries = [e for e in case.evidence.under("history/") if e.body["run"] == run.name]
    if [run.result["status"], *(e.body["status"] for e in entries)] != [status, status]:
        text = f"{status} expected: result {run.result['status']}, history {entries}"
        yield Violation("lost", run.name, text)


def results_follow_from_records(_: Case, run: Run) -> Iterable[Violation]:
    """The result says what the recorded outcomes imply, in the order that its epoch received."""
    result = run.result
    if result is None:
        return
    if run.expected.fails:
        record = run.by_slot.get(run.expected.fails)
        message = result.get("failure", {}).get("message", "")
        if record is None or message.split()[1:] != [record.slot, record.token]:
            yield Violation("changed", run.name, f"failed with {message!r}, recorded is {record}")
        return
    told = [(seen["slot"], seen["token"]) for seen in result.get("value", [])]
    lines = run.received[result["epoch"]]
    if told != [(line.slot, line.token) for line in lines]:
        yield Violation("changed", run.name, f"the result is {told}, its epoch received {lines}")
    needed = run.expected.values.keys() | run.expected.errors.keys()
    slots = [slot for slot, _ in told]
    if not needed <= set(slots) or len(slots) != len(set(slots)):
        yield Violation("changed", run.name, f"the result has {slots}, needed are {needed}")


# -- owners ---------------------------------------------------------------------------------------


def epochs_rise(case: Case, run: Run) -> Iterable[Violation]:
    """S3: numbers without gaps, in the order of time, one process each."""
    claims = sorted(run.folder.epochs.items())
    if [number for number, _ in claims] != list(range(2, len(claims) + 2)):
        yield Violation("broken", run.name, f"epochs {[number for number, _ in claims]}")
    times = [stored.created for _, stored in claims]
    if times != sorted(times):
        yield Violation("broken", run.name, f"epochs were claimed at {times}")
    for number, stored in claims:
        if stored.body["epoch"] != number:
            yield Violation("broken", run.name, f"{stored.name} is {stored.body['epoch']}")
    for epoch, lines in run.entered.items():
        if len(lines) > 1 or epoch not in {1, *run.folder.epochs}:
            yield Violation("broken", run.name, f"epoch {epoch} was executed by {lines}")
    for body in run.bodies:
        owners = {enter.process for enter in run.entered[body.epoch]}
        if owners != {body.process}:
            yield Violation("broken", run.name, f"{body} ran in an epoch of {owners}")


def nothing_recorded_runs_again(case: Case, run: Run) -> Iterable[Violation]:
    """No body runs under a later epoch than its record's, once that epoch could know of it.

    A dead owner has written all it ever will before the next one lists. One that was only
    stopped may write late; then the list's summary in the epoch's claim tells what was known.
    """
    for body in run.bodies:
        record = run.by_slot.get(body.slot)
        if record is None or record.epoch >= body.epoch:
            continue
        claim = run.folder.epochs[body.epoch]
        if not case.is_suspect(run, record.epoch) or _saw(claim.body, record):
            text = f"{record.path} was recorded in epoch {record.epoch} and ran again: {body}"
            yield Violation("repeated", run.name, text)


def repetitions_have_reasons(case: Case, run: Run) -> Iterable[Violation]:
    """T4: a body whose outcome is not recorded was in flight when its owner died or lost hold."""
    for body in run.bodies:
        if body.token in run.recorded_tokens or run.follows_late_record(body.epoch):
            continue
        if body.slot in run.expected.optional:
            continue  # a decision closed its branch
        process = case.story.processes[body.process]
        fenced = case.fenced_at(run, body.epoch)
        ends = [process.killed] if process.killed else []
        if fenced is not None:  # before that it was stopped, or starved
            ends += [fenced, *(stop for stop in process.stops if stop < fenced)]
        if not any(body.at > end - IN_FLIGHT for end in ends):
            text = f"{body} left no record, and had no reason to"
            yield Violation("repeated", run.name, text)


def attempts_follow_failures(_: Case, run: Run) -> Iterable[Violation]:
    """S17: attempt n runs only after attempt n - 1 has been recorded as failed."""
    failed = {(record.slot, record.attempt): record for record in run.failures}
    for body in run.bodies:
        before = failed.get((body.slot, body.attempt - 1))
        if body.attempt > 1 and (before is None or before.created > body.began):
            yield Violation("broken", run.name, f"{body} ran before attempt {body.attempt - 1}")


def repetitions_are_few(case: Case) -> Iterable[Violation]:
    """T4: per death at most the bodies that one worker can have in flight."""
    by_process: Counter[str] = Counter()
    for run in case.runs.values():
        by_process.update(body.process for body in _repeated(run))
    for name, times in by_process.items():
        deaths = bool(case.story.processes[name].killed) + len(case.lost_leases(name))
        if times > deaths * MOST_BODIES_IN_FLIGHT:
            yield Violation("repeated", "", f"{times} bodies of {name} ran again, deaths: {deaths}")


def fenced_owners_start_nothing(case: Case) -> Iterable[Violation]:
    """T3: after it was fenced, a worker starts no body.

    One body of each run is let pass: the process may have been stopped between its last look
    at the lease and the first line of the body, which may be in another thread.
    """
    for run in case.runs.values():
        late = [b for b in run.bodies if b.began > (case.fenced_at(run, b.epoch) or b.began)]
        for (process, epoch), times in Counter((b.process, b.epoch) for b in late).items():
            if times > 1:
                text = f"{process} was fenced and started {times} bodies of epoch {epoch} after it"
                yield Violation("broken", run.name, text)


def fences_are_justified(case: Case) -> Iterable[Violation]:
    """T2: a lease is fenced when it has run out, or when its process is provably dead."""
    for fence in case.evidence.fences:
        lease = case.story.leases.get(fence.worker)
        if lease is None or not lease.dead:
            yield Violation("broken", "", f"{fence}: the store shows no dead lease of it")
            continue
        process = case.story.processes[lease.process]
        if fence.reason == "lock" and not 0 < process.killed <= lease.dead:
            yield Violation("broken", "", f"{fence} by its lock, but it lived: {process}")
        if fence.reason == "lock" and process.private:
            yield Violation("broken", "", f"{fence} by a lock that nobody else can see: {process}")
        if fence.reason == "ttl" and lease.dead <= lease.alive + lease.ttl + lease.margin:
            yield Violation("broken", "", f"{fence} before its time: {lease}")
    for worker, times in Counter(fence.worker for fence in case.evidence.fences).items():
        if times > 1:
            yield Violation("broken", "", f"worker {worker} was fenced {times} times")


# -- at rest --------------------------------------------------------------------------------------


def nothing_is_left(case: Case) -> Iterable[Violation]:
    """L9: at rest no markers, no attention, no leases but dead ones, no unknown objects."""
    for stored in case.evidence.objects:
        folder = stored.name.split("/")[0]
        match folder:
            case "live":
                yield Violation("lost", marked_run(stored.name), f"{stored.name} is still there")
            case "attention":
                yield Violation("lost", stored.body["run"], f"it needs attention: {stored.body}")
            case "workers" if stored.body.get("state") != "dead":
                yield Violation("broken", "", f"a lease is left: {stored.name} {stored.body}")
            case "presence":
                yield from _left_presence(case, stored)
            case "runs" | "history" | "workers" | "bells":
                pass
            case _:
                yield Violation("broken", "", f"{stored.name} should not exist")
    for run in case.unknown:
        yield Violation("broken", run, "nobody started it")


def _left_presence(case: Case, stored: Object) -> Iterable[Violation]:
    """A process that was killed could not remove it, nor one that lost its id."""
    lease = case.story.leases.get(stored.body["worker"])
    process = case.story.processes[stored.body["label"]]
    if not process.killed and not (lease and lease.dead):
        yield Violation("broken", "", f"{process.name} ended and left {stored.name}")


def nothing_was_missing(case: Case) -> Iterable[Violation]:
    """L1, L2: what the harness waited for came in time; every process told a whole story."""
    for trouble in case.story.troubles:
        yield Violation("broken", "", trouble)
    deaths = sum(1 for p in case.story.processes.values() if p.killed)
    if case.evidence.torn > deaths:
        yield Violation("broken", "", f"{case.evidence.torn} lines of the log are torn")


MOST_BODIES_IN_FLIGHT = 6 * 9  # runs that a worker holds, by calls that one run makes at once

RUN_RULES: list[Callable[[Case, Run], Iterable[Violation]]] = [
    one_record_for_each_call,
    records_are_as_expected,
    records_are_what_bodies_returned,
    keys_name_calls,
    received_is_recorded,
    executions_agree,
    received_in_the_right_order,
    each_run_ends_once,
    results_follow_from_records,
    epochs_rise,
    nothing_recorded_runs_again,
    repetitions_have_reasons,
    attempts_follow_failures,
]
RULES: list[Callable[[Case], Iterable[Violation]]] = [
    repetitions_are_few,
    fenced_owners_start_nothing,
    fences_are_justified,
    nothing_is_left,
    nothing_was_missing,
]


# -- reading --------------------------------------------------------------------------------------


def _record(path: str, stored: Object) -> Record:
    body = stored.body
    failure = body.get("failure")
    if failure is not None:
        _, slot, token = failure["message"].split()
        outcome, proof = "error", failure["type"].rsplit(".", 1)[-1]
    else:
        value = body.get("value") or {}
        slot, token, text = (str(value.get(key, "")) for key in ("slot", "token", "blob"))
        outcome, proof = body["outcome"], hashlib.sha256(text.encode()).hexdigest()
        if text != (token * (len(text) // 16 + 1))[: len(text)]:
            outcome = "damaged value"
    return Record(
        path, slot, token, outcome, proof, body.get("epoch", 0), body.get("n", 0),
        body.get("attempt", 1), stored.created,
    )  # fmt: skip


def _attempt_paths(run: Run) -> Iterator[tuple[str, Object]]:
    for (path, _), stored in run.folder.attempts.items():
        yield path, stored


def _saw(claim: dict[str, Any], record: Record) -> bool:
    """Whether the list behind an epoch's claim contained this record."""
    highest, holes = claim.get("seen", {}).get(str(record.epoch), (0, []))
    return record.n <= highest and record.n not in holes


def _late(case: Case, run: Run) -> Iterator[Record]:
    """Records that landed after the next owner had claimed its epoch."""
    for record in run.records:
        claim = run.folder.epochs.get(record.epoch + 1)
        if claim is not None and record.created > claim.created:
            yield record


def _repeated(run: Run) -> Iterator[BodyLine]:
    """Executions without a record, of calls that ran again."""
    times = Counter((body.slot, body.attempt) for body in run.bodies)
    for body in run.bodies:
        if body.token not in run.recorded_tokens and times[body.slot, body.attempt] > 1:
            yield body


def show(value: object) -> str:
    """One object's body, short enough for a report."""
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
