"""What recording cheap steps together gains, beside ordinary steps of the same run."""

from __future__ import annotations

import argparse
import os
import statistics
from functools import partial
from typing import Any

from harness import Contender, Rounds, alternate, machine, median_ratio
from steps_http import at_server

ROWS = {
    "each": "each step by itself",
    "group": 'durability="group"',
    "sync": 'durability="group", sync',
}
STEPS = 200  # one after the other
PLACES = {"http_30": 30, "http_0": 0, "sqlite": None}  # milliseconds a call at a server


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print tables; returns the figures, ready for JSON."""
    figures: dict[str, Any] = {}
    contenders = [Contender("group_durable.py", variant, str(STEPS)) for variant in ROWS]
    for place, latency in PLACES.items():
        once = partial(_measure, latency, options.folder)
        found, _ = alternate(contenders, options.rounds, once)
        print(f"\n1 run x {STEPS} steps, {_said(latency)}")
        print(f"{'':28}{'steps/s':>9}{'CPU ms/step':>13}{'gain':>8}  requests")
        each = _rates(found, "each")
        for variant, name in ROWS.items():
            rates, cpu = _rates(found, variant), _cpu(found, variant)
            gain = median_ratio(rates, each)
            print(
                f"{name:28}{statistics.median(rates):>9,.0f}{cpu:>13.3f}{gain:>7.1f}x"
                f"  {_requests(found, variant)}"
            )
            figures |= {
                f"ratio_{variant}_{place}": round(gain, 2),
                f"steps_per_s_{variant}_{place}": round(statistics.median(rates), 1),
                f"cpu_ms_per_step_{variant}_{place}": round(cpu, 4),
            }
    load = round(os.getloadavg()[0], 1)
    print(f"\n{machine()}; medians of {options.rounds} rounds; load {load}")
    return {**figures, "rounds": options.rounds, "machine": machine(), "load": load}


def _measure(latency: int | None, folder: str | None, contender: Contender) -> dict[str, Any]:
    if latency is None:
        return contender.measure(folder)
    return at_server(latency, folder, contender)


def _said(latency: int | None) -> str:
    return "on SQLite" if latency is None else f"{latency} ms a call"


def _of(found: Rounds, variant: str) -> list[dict[str, Any]]:
    return found[Contender("group_durable.py", variant, str(STEPS))]


def _rates(found: Rounds, variant: str) -> list[float]:
    """Steps a second, round by round."""
    return [STEPS / one["wall"] for one in _of(found, variant)]


def _cpu(found: Rounds, variant: str) -> float:
    """Milliseconds of CPU time a step."""
    return statistics.median([1000 * one["cpu"] / STEPS for one in _of(found, variant)])


def _requests(found: Rounds, variant: str) -> str:
    """Of one round, warm-up included."""
    counts = _of(found, variant)[0].get("requests", {})
    return ", ".join(f"{number:,} {verb}" for verb, number in sorted(counts.items()))
