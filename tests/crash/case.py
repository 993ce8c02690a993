"""The evidence of a crash run, sorted by run, with the questions that the rules ask of it."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.crash.evidence import (
    BodyLine,
    EnterLine,
    Evidence,
    LeaseSeen,
    ReceivedLine,
    RunFolder,
)
from tests.crash.expected import Expected, expected
from tests.crash.store import Object

TICK = 0.001  # seconds; stores write down the millisecond in which something was made


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
        """Values and errors; calls that were cut off have an order number, but no outcome."""
        found = [_record(path, stored) for path, stored in self.folder.steps.items()]
        return [record for record in found if record.outcome != "abandoned"]

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

    @property
    def repeated(self) -> list[BodyLine]:
        """Executions without a record, of calls that ran again."""
        times = Counter((body.slot, body.attempt) for body in self.bodies)
        return [
            body
            for body in self.bodies
            if body.token not in self.recorded_tokens and times[body.slot, body.attempt] > 1
        ]

    @property
    def late_records(self) -> list[Record]:
        """Records that landed after the next owner had claimed its epoch."""
        claims = self.folder.epochs
        return [
            record
            for record in self.records
            if record.epoch + 1 in claims and record.created > claims[record.epoch + 1].created
        ]


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

    def was_beaten(self, run: Run, body: BodyLine) -> bool:
        """Whether something of an earlier owner was recorded meanwhile, late.

        A late outcome, of this call or of another, ends the epoch that meets it; a late failed
        attempt takes the place of the one that this owner has just made.
        """
        claim = run.folder.epochs.get(body.epoch)
        unseen = [r for r in run.records if claim is None or not saw(claim.body, r)]
        attempts = [r for r in run.failures if (r.slot, r.attempt) == (body.slot, body.attempt)]
        earlier = [r for r in [*unseen, *attempts] if r.epoch < body.epoch]
        return any(self.may_be_late(run, record) for record in earlier)

    def may_be_late(self, run: Run, record: Record) -> bool:
        """Whether it may have come after the next owner's list: from a zombie, or on the way."""
        owners = [self.story.processes[e.process] for e in run.entered[record.epoch]]
        landed_after_death = any(0 < o.killed <= record.created + TICK for o in owners)
        return landed_after_death or self.is_suspect(run, record.epoch)

    def takeover_times(self) -> Iterator[float]:
        """From the last renewal to the fence, of the leases under which runs were carried."""
        for run in self.runs.values():
            for enter in (e for lines in run.entered.values() for e in lines):
                ends = [
                    (lease.dead, lease.dead - lease.alive)
                    for lease in self.story.leases.values()
                    if lease.process == enter.process and lease.dead > enter.at
                ]
                following = run.folder.epochs.get(enter.epoch + 1)
                if ends and following and following.body["why"] == "takeover":
                    yield min(ends)[1]

    def lost_leases(self, process: str) -> list[LeaseSeen]:
        """Leases of a process that were fenced while it was stopped or starved."""
        return self._lost_leases[process]


def saw(claim: dict[str, Any], record: Record) -> bool:
    """Whether the list behind an epoch's claim contained this record."""
    highest, holes = claim.get("seen", {}).get(str(record.epoch), (0, []))
    return record.n <= highest and record.n not in holes


def _record(path: str, stored: Object) -> Record:
    body = stored.body
    failure = body.get("failure")
    if failure is not None:
        _, slot, token = [*failure["message"].split(), "", "", ""][:3]
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
