"""Steps on Google's API: durable beside the floor that sends the same requests, at a server."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

from harness import SOURCE, Contender, Rounds, alternate, machine, median_ratio
from shapes import SHAPES
from steps import DURABLE, FLOOR

RUN, WORKER = (DURABLE, "run"), (DURABLE, "worker")
STORE, REQUESTS = (FLOOR, "store"), (FLOOR, "requests")
SIDES = {
    RUN: "durable, client.run",
    WORKER: "durable, worker",
    STORE: "durable's store alone",
    REQUESTS: "floor: aiohttp alone",
}
# Shapes by the latency of a call in milliseconds.
MEASURED = {0: ("sequential", "concurrent"), 30: ("short", "concurrent", "crowd", "in_flight")}
LATENCIES = sorted(MEASURED)
# What is added to the names of a shape's figures; 50 runs at once have the plain names.
SUFFIXES = {"sequential": "_sequential", "short": "_sequential", "crowd": "_crowd"}
BUCKET = "benchmark"


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print tables; returns the figures, ready for JSON."""
    figures: dict[str, Any] = {}
    load = os.getloadavg()[0]
    for latency in options.latency_ms or LATENCIES:
        contenders = [Contender(*side, shape) for shape in MEASURED[latency] for side in SIDES]
        found, _ = alternate(
            contenders, options.rounds, partial(at_server, latency, options.folder)
        )
        for shape in MEASURED[latency]:
            _print_table(found, latency, shape)
        figures |= _figures(found, latency)
    loads = [round(load, 1), round(os.getloadavg()[0], 1)]
    print(f"\n{machine()}; medians of {options.rounds} rounds; load {loads[0]} to {loads[1]}")
    return {**figures, "rounds": options.rounds, "machine": machine(), "load": loads}


def at_server(latency: int, folder: str | None, contender: Contender) -> dict[str, Any]:
    """What one contender reports, on a server of its own whose calls take so many milliseconds."""
    with server(latency) as url:
        environment = {"BENCH_STORE": f"gs://{BUCKET}/runs", "STORAGE_EMULATOR_HOST": url}
        figures = contender.measure(folder, environment)
        with urllib.request.urlopen(f"{url}/_durable/calls") as answer:
            verbs = json.load(answer)["verbs"]
    return {**figures, "requests": {verb: counts["requests"] for verb, counts in verbs.items()}}


@contextlib.contextmanager
def server(latency: int, *, rate_limit: bool = False) -> Iterator[str]:
    """The strict server in a process of its own, with an empty bucket; its URL.

    Args:
        latency: of each call, in milliseconds.
        rate_limit: one mutation per second and object, as in Google's.
    """
    with server_process(latency, rate_limit=rate_limit) as (url, _):
        yield url


@contextlib.contextmanager
def server_process(latency: int, *, rate_limit: bool = False) -> Iterator[tuple[str, int]]:
    """The same; its URL and the id of its process."""
    command = [sys.executable, "-m", "durable.testing.gcs", "--latency-ms", str(latency)]
    command += ["--rate-limit"] if rate_limit else []
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            body = json.dumps({"name": BUCKET, "softDeletePolicy": {"retentionDurationSeconds": 0}})
            request = urllib.request.Request(
                f"{url}/storage/v1/b?project=benchmark",
                data=body.encode(),
                headers={"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request).close()
            yield url, process.pid
        finally:
            process.terminate()


def _print_table(found: Rounds, latency: int, shape: str) -> None:
    print(f"\n{SHAPES[shape]}, {latency} ms a call")
    print(f"{'':28}{'steps/s':>9}{'CPU ms/step':>13}{'of the floor':>14}{'its CPU':>9}  requests")
    for side, name in SIDES.items():
        contender = Contender(*side, shape)
        rates = _rates(found, contender)
        print(
            f"{name:28}{statistics.median(rates):>9,.0f}{_cpu(found, contender):>13.3f}"
            f"{_ratio(found, side, shape):>13.0%} {_cpu_ratio(found, side, REQUESTS, shape):>8.2f}x"
            f"  {_requests(found, contender)}"
        )
        if "lag_p99" in found[contender][0]:
            print(f"{'':28}event loop late by {_lag(found, contender)}")


def _figures(found: Rounds, latency: int) -> dict[str, float]:
    """Of one latency: of each shape its speed, or how late the event loop was."""
    figures: dict[str, float] = {}
    for shape in MEASURED[latency]:
        at = f"http_{latency}{SUFFIXES.get(shape, '')}"
        figures |= _lags(found, at, shape) if shape == "in_flight" else _speed(found, at, shape)
    return figures


def _speed(found: Rounds, at: str, shape: str) -> dict[str, float]:
    contender = Contender(*RUN, shape)
    return {
        f"ratio_floor_{at}": round(_ratio(found, RUN, shape), 3),
        f"ratio_floor_worker_{at}": round(_ratio(found, WORKER, shape), 3),
        f"cpu_ratio_floor_{at}": round(_cpu_ratio(found, RUN, REQUESTS, shape), 3),
        f"cpu_ratio_floor_worker_{at}": round(_cpu_ratio(found, WORKER, REQUESTS, shape), 3),
        f"cpu_ratio_store_{at}": round(_cpu_ratio(found, RUN, STORE, shape), 3),
        f"steps_per_s_{at}": round(statistics.median(_rates(found, contender)), 1),
        f"cpu_ms_per_step_{at}": round(_cpu(found, contender), 4),
    }


def _lags(found: Rounds, at: str, shape: str) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, side in (("", RUN), ("_floor", REQUESTS)):
        for lag in ("lag_p50", "lag_p99", "lag_max"):
            values = [measured[lag] for measured in found[Contender(*side, shape)]]
            key = f"{lag.replace('_', f'{name}_')}_ms_{at}"
            figures[key] = round(statistics.median(values), 2)
    return figures


def _rates(found: Rounds, contender: Contender) -> list[float]:
    """Steps a second, round by round."""
    return [SHAPES[contender.shape].total / measured["wall"] for measured in found[contender]]


def _cpu(found: Rounds, contender: Contender) -> float:
    """Milliseconds of CPU time a step, the median of the rounds."""
    total = SHAPES[contender.shape].total
    return statistics.median([1000.0 * float(m["cpu"]) / total for m in found[contender]])


def _ratio(found: Rounds, side: tuple[str, str], shape: str) -> float:
    """Steps a second over those of the floor."""
    floor = Contender(*REQUESTS, shape)
    return median_ratio(_rates(found, Contender(*side, shape)), _rates(found, floor))


def _cpu_ratio(found: Rounds, side: tuple[str, str], under: tuple[str, str], shape: str) -> float:
    """CPU time over that of another side."""
    own, other = Contender(*side, shape), Contender(*under, shape)
    return median_ratio(
        [float(m["cpu"]) for m in found[own]], [float(m["cpu"]) for m in found[other]]
    )


def _lag(found: Rounds, contender: Contender) -> str:
    parts = ("lag_p50", "lag_p99", "lag_max")
    medians = [statistics.median([m[p] for m in found[contender]]) for p in parts]
    return "p50 {:.1f}, p99 {:.1f}, at most {:.1f} ms".format(*medians)


def _requests(found: Rounds, contender: Contender) -> str:
    """Of one round, warm-up included, so that both sides can be seen to send the same."""
    counts = found[contender][0]["requests"]
    return ", ".join(f"{number:,} {verb}" for verb, number in sorted(counts.items()))
