"""kill -9 in the middle of a run: how soon it goes on, and what is done twice."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import crash
import peers
from harness import HERE, SOURCE, Contender, alternate, machine

DURABLE, DBOS = "crash_durable.py", "crash_dbos.py"
NAMES = {
    (DURABLE, "run"): "durable, started again",
    (DURABLE, "worker"): "durable, another worker",
    (DURABLE, "unproven"): "durable, no lock file shared",
    (DBOS, "sqlite"): "DBOS on SQLite, started again",
    (DBOS, "postgres"): "DBOS on PostgreSQL, started again",
}
PATIENCE = 90.0  # seconds for one measurement


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns the figures, ready for JSON."""
    with peers.present(options.folder) as present:
        contenders = [
            Contender(program, variant, "start")
            for program, variant in NAMES
            if program == DURABLE or variant in present.environments
        ]
        found, failed = alternate(
            contenders, options.rounds,
            lambda each: _once(each, options.folder, present.environments.get(each.variant, {})),
            peers=[DBOS],
        )  # fmt: skip
    print(
        f"\n{crash.STEPS} steps of {1000 * crash.SECONDS:g} ms, killed in the {crash.KILLED_IN}th"
    )
    print(f"{'seconds from the kill to':34}{'next step':>10}{'the end':>9}{'done twice':>12}")
    figures: dict[str, Any] = {}
    for contender, measured in found.items():
        m = {name: statistics.median([one[name] for one in measured]) for name in measured[0]}
        name = NAMES[contender.program, contender.variant]
        print(f"{name:34}{m['next']:>10.2f}{m['end']:>9.2f}{m['repeated']:>12.0f}")
        key = f"{'dbos' if contender.program == DBOS else 'durable'}_{contender.variant}"
        figures |= {f"{part}_{key}": round(value, 3) for part, value in m.items()}
    absent = [*present.absent, *failed]
    for why in absent:
        print(f"left out: {why}")
    print(f"{machine()}; medians of {options.rounds} rounds; load {os.getloadavg()[0]:.1f}")
    return {**figures, "absent": absent, "rounds": options.rounds, "machine": machine()}


def _once(contender: Contender, folder: str | None, environment: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        here = Path(place)
        standby = contender.program == DURABLE and contender.variant != "run"
        if standby:
            (here / crash.STANDBY).touch()
        first = _begin(contender, "start", here, environment)
        if standby:
            _until_it_runs(first, here)  # or the other one would take the run, and be killed
            second = _begin(contender, "join", here, environment)
            _end(first)
        else:
            _end(first)
            second = _begin(contender, "start", here, environment)
        code = _end(second)
        if code or not (here / crash.KILLED).exists():
            errors = (here / "errors").read_text(encoding="utf-8")
            raise RuntimeError(f"{contender} ended with {first.returncode}, then {code}: {errors}")
        return _figures(here)


def _begin(
    contender: Contender, part: str, here: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    with (here / "errors").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, str(HERE / contender.program), contender.variant, part],
            cwd=here, env={**os.environ, "PYTHONPATH": path, **environment},
            stdout=errors, stderr=errors,
        )  # fmt: skip


def _until_it_runs(process: subprocess.Popen[bytes], here: Path) -> None:
    trace, ends = here / crash.TRACE, time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < ends:
        if trace.exists() and "\n0 " in trace.read_text(encoding="ascii"):
            return
        time.sleep(0.01)


def _end(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(PATIENCE)
    finally:
        process.kill()


def _figures(here: Path) -> dict[str, float]:
    """Seconds from the kill: to the next body, to the end; how many steps began twice."""
    killed = float((here / crash.KILLED).read_text(encoding="ascii"))
    lines = [line.split() for line in (here / crash.TRACE).read_text(encoding="ascii").splitlines()]
    trace = [(word, float(at)) for word, at in lines]
    bodies = Counter(word for word, _ in trace if word.isdigit())
    assert len(bodies) == crash.STEPS
    assert trace[-1][1] <= time.time()
    return {
        "next": min(at for word, at in trace if word.isdigit() and at > killed) - killed,
        "end": max(at for _, at in trace) - killed,
        "repeated": bodies.total() - crash.STEPS,
    }
