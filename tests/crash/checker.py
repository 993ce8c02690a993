"""Judges the evidence of a crash run. Shares nothing with durable but the words of its records."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tests.crash.case import Case
from tests.crash.evidence import Evidence
from tests.crash.rules import RULES
from tests.crash.run_rules import RUN_RULES
from tests.crash.violations import Violation


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


def check(evidence: Evidence) -> Verdict:
    """Apply every rule."""
    case = Case(evidence)
    processes = evidence.story.processes.values()
    fences = Counter(fence.reason for fence in evidence.fences)
    verdict = Verdict(
        kills=sum(1 for p in processes if p.killed),
        zombies=sum(len(p.stops) for p in processes),
        runs=len(case.runs),
        repeated=sum(len(run.repeated) for run in case.runs.values()),
        by_lock=fences["lock"],
        by_ttl=fences["ttl"],
        late_records=sum(len(run.late_records) for run in case.runs.values()),
        starved=sum(len(case.lost_leases(p.name)) for p in processes if not p.stops),
        slowest_takeover=max(case.takeover_times(), default=0.0),
    )
    for rule in RULES:
        verdict.violations += _named(rule, rule(case))
    for run_rule in RUN_RULES:
        for run in case.runs.values():
            verdict.violations += _named(run_rule, run_rule(case, run))
    return verdict


def _named(rule: Callable[..., object], found: Iterable[Violation]) -> Iterator[Violation]:
    for violation in found:
        yield dataclasses.replace(violation, rule=rule.__name__)
