"""Measures of durable, some beside its peers: `python benchmarks/run.py steps --json`.

Each measurement has a process and a folder of its own, and the rounds alternate between those
that are compared. See docs/how-to/run-the-benchmarks.md for what is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[1]))  # tests import some of it as `benchmarks`

import cost
import dispatch
import fanout
import group
import parked
import queues
import recovery
import resume
import scale
import server
import startup
import steps
import steps_http
from record import recorded

BENCHMARKS = {
    ("cost", "sqlite"): cost.measure,  # its stores are its own
    ("dispatch", "sqlite"): dispatch.measure,  # and at a server
    ("fanout", "sqlite"): fanout.measure,
    ("group", "sqlite"): group.measure,  # and at a server
    ("parked", "sqlite"): parked.measure,  # its bucket is in memory
    ("queues", "sqlite"): queues.measure,  # and at a server
    ("recovery", "sqlite"): recovery.measure,
    ("resume", "sqlite"): resume.measure,  # at a server, too
    ("scale", "sqlite"): scale.measure,  # at a server and in memory
    ("server", "sqlite"): server.measure,  # of Google's API, alone
    ("startup", "sqlite"): startup.measure,
    ("steps", "sqlite"): steps.measure,
    ("steps", "http"): steps_http.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", choices=sorted({name for name, _ in BENCHMARKS}))
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--record", action="store_true", help="into docs/reference/benchmarks.md")
    parser.add_argument("--rounds", type=_positive, default=3, help="how often (default: 3)")
    parser.add_argument("--folder", help="where databases are put, each in a folder of its own")
    parser.add_argument(
        "--store", choices=["sqlite", "http"], default="sqlite",
        help="of `steps`: a file (default), or Google's API at a server of durable.testing.gcs",
    )  # fmt: skip
    parser.add_argument(
        "--latency-ms", type=int, choices=steps_http.LATENCIES, action="append",
        help="of each call to that server (default: one after the other)",
    )  # fmt: skip
    parser.add_argument("--jobs", type=_positive, help="of `queues` (default: 2000, then 200)")
    parser.add_argument(
        "--processes", type=int, choices=[1, 2], default=1,
        help="2: `steps` also by two processes on one store",
    )  # fmt: skip
    options = parser.parse_args()
    benchmark = BENCHMARKS.get((options.benchmark, options.store))
    if benchmark is None:
        parser.error(f"{options.benchmark} has no --store {options.store}")
    left_out = {"--json", "--record", "--folder", options.folder}
    words = [word for word in sys.argv[1:] if word not in left_out]
    with recorded(" ".join(words)) if options.record else contextlib.nullcontext():
        figures = benchmark(options)
    if options.json:
        print(json.dumps(figures))


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    main()
