"""How many steps a second, and at what CPU cost: durable, the floor under it, and peers."""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
from typing import Any

import peers
from harness import Contender, Rounds, alternate, machine, median_ratio
from shapes import SHAPES

DURABLE, FLOOR = "steps_durable.py", "steps_floor.py"
DBOS, RESTATE = "steps_dbos.py", "steps_restate.py"
NAMES = {
    (DURABLE, "run"): "durable, client.run",
    (DURABLE, "worker"): "durable, worker",
    (DURABLE, "sync"): "durable, sync steps",
    (FLOOR, "store"): "floor: store calls alone",
    (DBOS, "run"): "DBOS on SQLite",
    (DBOS, "sync"): "DBOS on SQLite, sync steps",
    (DBOS, "postgres"): "DBOS on PostgreSQL",
    (DBOS, "postgres-sync"): "DBOS on PostgreSQL, sync",
    (RESTATE, "run"): "Restate, one node",
}
MEASURED = ("sequential", "concurrent")
BACKENDS = {
    (DBOS, "run"): "sqlite",
    (DBOS, "sync"): "sqlite",
    (DBOS, "postgres"): "postgres",
    (DBOS, "postgres-sync"): "postgres",
    (RESTATE, "run"): "restate",
}  # whose environment a peer's process needs
SHARED = ((DURABLE, "run"), (FLOOR, "store"), (DBOS, "run"), (DBOS, "postgres"))  # by processes


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print tables; returns the figures, ready for JSON."""
    several: int = options.processes
    with peers.present(options.folder) as present:

        def once(contender: Contender) -> dict[str, Any]:
            environment = present.environments.get(BACKENDS.get(contender[:2], ""), {})
            return contender.measure(
                options.folder, environment, processes=2 if contender.shape == "half" else 1
            )

        contenders = [
            Contender(*each, shape)
            for shape in (*MEASURED, *(["half"] if several > 1 else []))
            for each in (SHARED if shape == "half" else NAMES)
            if each not in BACKENDS or BACKENDS[each] in present.environments
        ]
        found, failed = alternate(contenders, options.rounds, once, peers=[DBOS, RESTATE])
    shapes = list(dict.fromkeys(contender.shape for contender in contenders))
    for shape in shapes:
        _print_table(found, shape)
    absent = [*present.absent, *failed]
    for why in absent:
        print(f"\nleft out: {why}")
    load = round(os.getloadavg()[0], 1)
    print(
        f"\n{machine()}, SQLite {sqlite3.sqlite_version}; medians of {options.rounds} rounds; "
        f"load {load}"
    )
    suffixes = {"sequential": "", "concurrent": "_concurrent", "half": "_processes_2"}
    figures = {
        f"{name}{suffixes[shape]}": figure
        for shape in shapes
        for name, figure in _figures(found, shape).items()
    }
    return {
        **figures,
        "dbos": _version(found, DBOS),
        "restate": _version(found, RESTATE),
        "absent": absent,
        "rounds": options.rounds,
        "sqlite": sqlite3.sqlite_version,
        "machine": machine(),
        "load": load,
    }


def _title(shape: str) -> str:
    return f"2 processes, each {SHAPES[shape]}" if shape == "half" else str(SHAPES[shape])


def _total(shape: str) -> int:
    return SHAPES[shape].total * (2 if shape == "half" else 1)


def _print_table(found: Rounds, shape: str) -> None:
    print(f"\n{_title(shape)}")
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
        if own not in found or other not in found:
            return None
        return round(median_ratio(_rates(found, own), _rates(found, other)), 3)

    def cpu(program: str, variant: str) -> float | None:
        contender = Contender(program, variant, shape)
        return round(_cpu(found, contender), 4) if contender in found else None

    return {
        "ratio_dbos_sqlite": ratio("run", (DBOS, "run")),
        "ratio_dbos_sqlite_worker": ratio("worker", (DBOS, "run")),
        "ratio_dbos_sqlite_sync": ratio("sync", (DBOS, "sync")),  # sync steps on both sides
        "ratio_dbos_postgres": ratio("run", (DBOS, "postgres")),
        "ratio_dbos_postgres_sync": ratio("sync", (DBOS, "postgres-sync")),
        "ratio_restate": ratio("run", (RESTATE, "run")),
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
    return [_total(contender.shape) / measured["wall"] for measured in found[contender]]


def _cpu(found: Rounds, contender: Contender) -> float:
    """Milliseconds of CPU time a step, the median of the rounds."""
    total = _total(contender.shape)
    return statistics.median([1000.0 * float(m["cpu"]) / total for m in found[contender]])


def _over_floor(found: Rounds, shape: str) -> float:
    """What `client.run` adds to the store's own CPU time, the median of the rounds."""
    own, floor = Contender(DURABLE, "run", shape), Contender(FLOOR, "store", shape)
    pairs = zip(found[own], found[floor], strict=True)
    total = _total(shape)
    return statistics.median(
        [1000.0 * (float(a["cpu"]) - float(b["cpu"])) / total for a, b in pairs]
    )


def _version(found: Rounds, program: str) -> str | None:
    versions = (m["version"] for c, measured in found.items() for m in measured if c[0] == program)
    return next(versions, None)
