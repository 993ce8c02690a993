"""What it takes to go on with a run that has a long record: lists, seconds, CPU, memory."""

from __future__ import annotations

import argparse
import os
import statistics
from typing import Any

from harness import Contender, alternate, machine
from steps_http import at_server

LENGTHS = (1000, 10_000)
PLACES = {"sqlite": None, "http_0": 0, "http_30": 30}  # latency of a call in milliseconds
PROGRAM = "resume_durable.py"
KEYS = {
    "lists": "lists", "wall": "resume_s", "cpu": "resume_cpu_s", "memory_mb": "memory_mb",
    "bytes_per_live_step": "bytes_per_live_step",
}  # fmt: skip


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns the figures, ready for JSON."""
    contenders = [Contender(PROGRAM, place, str(n)) for place in PLACES for n in LENGTHS]

    def once(contender: Contender) -> dict[str, Any]:
        latency = PLACES[contender.variant]
        if latency is None:
            return contender.measure(options.folder)
        return at_server(latency, options.folder, contender)

    found, _ = alternate(contenders, options.rounds, once)
    print(
        f"\n{'recorded steps':30}{'lists':>7}{'s':>8}{'CPU s':>8}{'MB':>7}{'bytes/live step':>17}"
    )
    figures: dict[str, Any] = {}
    for contender, measured in found.items():
        m = {name: statistics.median([one[name] for one in measured]) for name in KEYS}
        length, place = int(contender.shape), contender.variant
        live = f"{m['bytes_per_live_step']:>17.0f}" if place == "sqlite" else ""
        print(
            f"{length:>7,} on {place:19}{m['lists']:>7.0f}{m['wall']:>8.3f}{m['cpu']:>8.3f}"
            f"{m['memory_mb']:>7.1f}{live}"
        )
        figures |= {f"{key}_{length}_{place}": round(m[name], 3) for name, key in KEYS.items()}
    load = round(os.getloadavg()[0], 1)
    print(f"\n{machine()}; medians of {options.rounds} rounds; load {load}")
    return {**figures, "rounds": options.rounds, "machine": machine(), "load": load}
