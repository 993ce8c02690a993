"""What it takes to begin: importing durable, and the time to the first step of `durable run`.

Each measurement is a fresh process with the bytecode already there, as it is from an installed
package's second use on.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import SOURCE, machine

ROWS = {
    "python alone": "pass",
    "floor: anyio, msgspec, asyncio": "import anyio, msgspec, asyncio",
    "durable": "import durable",
    "DBOS": "import dbos",
}
PEERS = {"DBOS": "dbos"}
METER = """
import time
wall, cpu = time.perf_counter(), time.process_time()
{code}
import sys
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
modules = len(sys.modules)
status = open("/proc/self/status").read()  # the highest since this program began, in KiB
rss = int(status.split("VmHWM:")[1].split()[0]) / 1024
import json
print(json.dumps({{"wall": wall, "cpu": cpu, "rss": rss, "modules": modules}}))
"""
RUN = "import sys, durable_command; sys.exit(durable_command.main())"  # what `durable` does
FLOW = """
import time
from durable import step, workflow

@step
async def first() -> float:
    return time.time()

@workflow
async def begin() -> float:
    return await first()
"""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns the figures, ready for JSON."""
    absent = [row for row, module in PEERS.items() if importlib.util.find_spec(module) is None]
    rows = {row: code for row, code in ROWS.items() if row not in absent}
    found: dict[str, list[dict[str, float]]] = {row: [] for row in rows}
    firsts = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for number in range(options.rounds + 1):
            for row, code in rows.items():
                found[row].append(_import(code, folder))
            firsts.append(_first_step(folder, f"r{number}"))
    medians = {row: _medians(seen[1:]) for row, seen in found.items()}  # the first one compiles
    first = statistics.median(firsts[1:])
    print(f"{'import of':34}{'wall ms':>9}{'CPU ms':>9}{'RSS MB':>9}{'modules':>9}")
    for row, m in medians.items():
        print(f"{row:34}{m['wall']:>9.0f}{m['cpu']:>9.0f}{m['rss']:>9.1f}{m['modules']:>9.0f}")
    print(f"\n`durable run`: {first:.2f} s from the command to the first line of its first step")
    for row in absent:
        print(f"left out: {row}, which is not installed")
    print(f"{machine()}; medians of {options.rounds} rounds")
    own = medians["durable"]
    return {
        "import_wall_ms": round(own["wall"]), "import_cpu_ms": round(own["cpu"]),
        "import_rss_mb": round(own["rss"], 1), "modules": own["modules"],
        "import_cpu_ms_floor": round(medians["floor: anyio, msgspec, asyncio"]["cpu"]),
        "import_cpu_ms_dbos": round(medians["DBOS"]["cpu"]) if "DBOS" in medians else None,
        "first_step_s": round(first, 3), "absent": absent, "machine": machine(),
    }  # fmt: skip


def _import(code: str, folder: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", METER.format(code=code)],
        env=_environment(folder), cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    figures: dict[str, float] = json.loads(done.stdout)
    return {**figures, "wall": 1000 * figures["wall"], "cpu": 1000 * figures["cpu"]}


def _first_step(folder: str, run: str) -> float:
    """Seconds from the start of the process to the first step's body."""
    flow = Path(folder, "flow.py")
    flow.write_text(FLOW, encoding="utf-8")
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-c", RUN, "run", f"{flow}:begin", "--id", run],
        env=_environment(folder), cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    return float(done.stdout) - began


def _environment(folder: str) -> dict[str, str]:
    kept = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(SOURCE), "PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode"))}


def _medians(seen: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median([each[name] for each in seen]) for name in seen[0]}
