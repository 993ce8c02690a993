"""What a map over many items takes: seconds, CPU and memory for each."""

from __future__ import annotations

import argparse
import os
import statistics
from typing import Any

from harness import Contender, alternate, machine

ITEMS = (1000, 20_000)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns the figures, ready for JSON."""
    contenders = [Contender("fanout_durable.py", "map", str(items)) for items in ITEMS]
    found, _ = alternate(contenders, options.rounds, lambda each: each.measure(options.folder))
    figures: dict[str, Any] = {}
    print(f"\n{'items':>8}{'s':>8}{'items/s':>10}{'CPU ms/item':>13}{'peak MB':>9}{'KB/item':>9}")
    for contender, measured in found.items():
        m = {name: statistics.median([one[name] for one in measured]) for name in measured[0]}
        items = int(contender.shape)
        cpu, kilobytes = 1000 * m["cpu"] / items, 1024 * (m["peak_mb"] - m["before_mb"]) / items
        print(
            f"{items:>8,}{m['wall']:>8.2f}{items / m['wall']:>10,.0f}{cpu:>13.3f}"
            f"{m['peak_mb']:>9.1f}{kilobytes:>9.2f}"
        )
        figures |= {
            f"seconds_{items}": round(m["wall"], 2), f"cpu_ms_per_item_{items}": round(cpu, 4),
            f"peak_mb_{items}": round(m["peak_mb"], 1), f"kb_per_item_{items}": round(kilobytes, 2),
        }  # fmt: skip
    load = round(os.getloadavg()[0], 1)
    print(f"\n{machine()}; medians of {options.rounds} rounds; load {load}")
    return {**figures, "rounds": options.rounds, "machine": machine(), "load": load}
