"""What a person needs to understand a violation: the story of its run, in the order of time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.crash.checker import Verdict
from tests.crash.evidence import LOGS, Evidence

RUNS_TOLD = 3  # the timelines of more would hide the first
LINES_KEPT = 200


def explain(evidence: Evidence, verdict: Verdict, folder: Path) -> str:
    """The figures, each violation, and the timelines of the first runs concerned."""
    lines = [
        f"slowest fence: {verdict.slowest_takeover:.1f} s after the last renewal",
        f"late records: {verdict.late_records}",
        f"leases lost by starved workers: {verdict.starved}",
    ]
    if struck := evidence.story.struck:
        lines.append("faults of the store: " + ", ".join(f"{k} {n}" for k, n in struck.items()))
    if verdict.violations:
        lines.append(f"VIOLATIONS (seed {evidence.story.seed}, evidence in {folder}):")
        lines += [
            f"  {v.kind} {v.run} ({v.rule}): {v.text}" for v in verdict.violations[:LINES_KEPT]
        ]
    for run in list(dict.fromkeys(v.run for v in verdict.violations if v.run))[:RUNS_TOLD]:
        lines.append(f"timeline of run {run}:")
        lines += [f"  {at:14.3f} {text}" for at, text in sorted(_events(evidence, run, folder))]
    return "".join(f"{line}\n" for line in lines)


def _events(evidence: Evidence, run: str, folder: Path) -> Iterator[tuple[float, str]]:
    found = evidence.folders().get(run)
    processes = set()
    for kind, log in (("body", evidence.bodies), ("received", evidence.received)):
        for line in log:
            if line.run == run:
                processes.add(line.process)
                yield line.at, f"{kind} {_show(asdict(line))}"
    for enter in evidence.entered:
        if enter.run == run:
            processes.add(enter.process)
            yield enter.at, f"enter {_show(asdict(enter))}"
    if found is not None:
        objects = [found.start, *found.steps.values(), *found.attempts.values()]
        for stored in [*objects, *found.epochs.values(), *found.results]:
            if stored is not None:
                yield stored.created, f"object {stored.name} {_show(stored.body)}"
    for name in processes:
        fate = evidence.story.processes[name]
        events = [(fate.started, "started"), (fate.killed, "killed"), (fate.drained, "drained")]
        events += [(at, "stopped") for at in fate.stops] + [(at, "woken") for at in fate.wakes]
        yield from ((at, f"{name} (pid {fate.pid}) was {verb}") for at, verb in events if at)
        for lease in evidence.story.leases.values():
            if lease.process == name and lease.dead:
                yield lease.dead, f"worker {lease.worker} of {name} was fenced"
        log_file = folder / LOGS / f"{name}.log"
        for text in log_file.read_text(errors="replace").splitlines() if log_file.exists() else ():
            if run in text or "lease" in text:
                yield fate.started, f"log of {name}: {text}"


def _show(value: object) -> str:
    """One object's body, short enough for a report."""
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
