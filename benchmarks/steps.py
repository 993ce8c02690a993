"""How many steps a second, and at what CPU cost: durable, the floor under it, and DBOS."""

from __future__ import annotations

import argparse
import importlib.util
import sqlite3
import statistics
from typing import Any

from harness import Contender, Rounds, alternate, machine, median_ratio
from shapes import SHAPES

DURABLE, FLOOR, DBOS = "steps_durable.py", "steps_floor.py", "steps_dbos.py"
NAMES = {
    (DURABLE, "run"): "durable, client.run",
    (DURABLE, "worker"): "durable, worker",
    (DURABLE, "sync"): "durable, sync steps",
    (FLOOR, "store"): "floor: store calls alone",
    (DBOS, "run"): "DBOS on SQLite",
    (DBOS, "sync"): "DBOS on SQLite, sync steps",
}
MEASURED = ("sequential", "concurrent")
PEERS = {DBOS: "dbos"}  # program -> the module it needs


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print tables; returns the figures, ready for JSON."""
    rounds = options.rounds
    missing = {p: m for p, m in PEERS.items() if importlib.util.find_spec(m) is None}
    contenders = [
        Contender(program, variant, shape)
        for shape in MEASURED
        for program, variant in NAMES
        if program not in missing
    ]
    found, failed = alternate(
        contenders, rounds, lambda each: each.measure(options.folder), peers=list(PEERS)
    )
    for shape in MEASURED:
        _print_table(found, shape)
    absent = [*missing.values(), *(PEERS[program] for program in failed)]
    for program, module in missing.items():
        print(f"\nleft out: {program} needs {module}, which is not installed")
    for why in failed.values():
        print(f"\nleft out: {why}")
    print(f"\n{machine()}, SQLite {sqlite3.sqlite_version}; medians of {rounds} rounds")
    return {
        **_figures(found, "sequential"),
        **{f"{name}_concurrent": f for name, f in _figures(found, "concurrent").items()},
        "dbos": _version(found),
        "absent": absent,
        "rounds": rounds,
        "sqlite": sqlite3.sqlite_version,
        "machine": machine(),
    }


def _print_table(found: Rounds, shape: str) -> None:
    print(f"\n{SHAPES[shape]}")
    print(f"{'':28}{'steps/s':>9}{'ms/step':>10}{'CPU ms/step':>14}{'durable is':>13}")
    own = _rates(found, Contender(DURABLE, "run", shape))
    for contender in found:
        if contender.shape == shape:
            rates = _rates(found, contender)
            print(
                f"{NAMES[contender.program, contender.variant]:28}{statistics.median(rates):>9,.0f}"
                f"{1000 / statistics.median(rates):>10.2f}{_cpu(found, contender):>14.3f}"
                f"{median_ratio(own, rates):>12.2f}x"
            )


def _figures(found: Rounds, shape: str) -> dict[str, float | None]:
    """Of one shape; None where a peer was left out. `ratio_x`: durable's steps/s over x's."""

    def ratio(of: str, to: tuple[str, str]) -> float | None:
        own, other = Contender(DURABLE, of, shape), Contender(*to, shape)
        if other not in found:
            return None
        return round(median_ratio(_rates(found, own), _rates(found, other)), 3)

    def cpu(program: str, variant: str) -> float | None:
        contender = Contender(program, variant, shape)
        return round(_cpu(found, contender), 4) if contender in found else None

    return {
        "ratio_dbos_sqlite": ratio("run", (DBOS, "run")),
        "ratio_dbos_sqlite_worker": ratio("worker", (DBOS, "run")),
        "ratio_dbos_sqlite_sync": ratio("sync", (DBOS, "sync")),  # sync steps on both sides
        "ratio_floor": ratio("run", (FLOOR, "store")),
        "steps_per_s": round(statistics.median(_rates(found, Contender(DURABLE, "run", shape)))),
        "cpu_ms_per_step": cpu(DURABLE, "run"),
        "cpu_ms_per_step_worker": cpu(DURABLE, "worker"),
        "cpu_ms_per_step_floor": cpu(FLOOR, "store"),
        "cpu_ms_per_step_over_floor": round(_over_floor(found, shape), 4),
        "cpu_ms_per_step_dbos": cpu(DBOS, "run"),
    }


def _rates(found: Rounds, contender: Contender) -> list[float]:
    """Steps a second, round by round."""
    return [SHAPES[contender.shape].total / measured["wall"] for measured in found[contender]]


def _cpu(found: Rounds, contender: Contender) -> float:
    """Milliseconds of CPU time a step, the median of the rounds."""
    total = SHAPES[contender.shape].total
    return statistics.median([1000.0 * float(m["cpu"]) / total for m in found[contender]])


def _over_floor(found: Rounds, shape: str) -> float:
    """What `client.run` adds to the store's own CPU time, the median of the rounds."""
    own, floor = Contender(DURABLE, "run", shape), Contender(FLOOR, "store", shape)
    pairs = zip(found[own], found[floor], strict=True)
    total = SHAPES[shape].total
    return statistics.median(
        [1000.0 * (float(a["cpu"]) - float(b["cpu"])) / total for a, b in pairs]
    )


def _version(found: Rounds) -> str | None:
    versions = (m["version"] for measured in found.values() for m in measured if "version" in m)
    return next(versions, None)
