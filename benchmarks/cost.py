"""What a bucket costs: requests by class, and dollars by Google's published prices."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from trio.testing import MockClock

from benchmarks import billing, workloads
from benchmarks.billing import DOLLARS_PER_MILLION, PRICES_OF, Count

T = TypeVar("T")
Rows = dict[str, Count]
Measures = tuple[Callable[[], Awaitable[Rows]], ...]

OVER_SOCKETS: Measures = (
    billing.starting, billing.running, billing.picking_up, billing.waiting, billing.reading,
)  # fmt: skip
BY_THE_CLOCK: Measures = (
    billing.waking, billing.sleeping_long, billing.asking_long, billing.parking,
    billing.holding, billing.idling, billing.watching,
)  # fmt: skip
PER_MONTH = {
    "per minute": 60 * 24 * 30,
    "per ttl/3": 60 * 24 * 30 * 60 / (20 / 3),
    "per ttl": 60 * 24 * 30 * 60 / 20,
}


def measure(_options: argparse.Namespace) -> dict[str, Any]:
    """Count and print tables; returns the figures, ready for JSON."""
    logging.getLogger("durable").setLevel(logging.ERROR)  # runs are parked on purpose
    server = anyio.run(_rows, OVER_SOCKETS)
    clock = _on_a_virtual_clock(_rows, BY_THE_CLOCK)
    typical = _on_a_virtual_clock(workloads.all_of_them, server, clock)
    _print("at the HTTP server, over sockets", server)
    _print("at the HTTP server, without sockets, on a virtual clock", clock)
    for name, count in clock.items():
        if (times := _per_month(name)) is not None:
            print(f"  {name}: ${count.dollars_per_million * times / 1e6:.2f} a month")
    _print_workloads(typical)
    print(
        "\nEach row is lines of the strict server's own log: HTTP requests of the gs:// store. 4xx "
        "are answers such\nas those to a look for something absent.\n"
        f"Class A ${DOLLARS_PER_MILLION['A']:.2f} and class B ${DOLLARS_PER_MILLION['B']:.2f} a "
        "million (single region, Standard storage, flat namespace); deletes and 4xx are free.\n"
        f"https://cloud.google.com/storage/pricing as of {PRICES_OF}."
    )
    return {
        "over_sockets": {name: _figures(count) for name, count in server.items()},
        "on_a_virtual_clock": {name: _figures(count) for name, count in clock.items()},
        "workloads_usd": {each.name: each.dollars for each in typical},
        "usd_per_million": DOLLARS_PER_MILLION,
        "prices_of": PRICES_OF,
    }


def _on_a_virtual_clock(main: Callable[..., Awaitable[T]], *args: object) -> T:
    clock = MockClock(autojump_threshold=0)
    return anyio.run(main, *args, backend="trio", backend_options={"clock": clock})


def _print_workloads(typical: list[workloads.Workload]) -> None:
    columns = f"{'durable':>12}{'Temporal Cloud':>16}{'Step Functions':>16}{'Cloud SQL':>11}"
    print(f"\n{'dollars':42}{columns}")
    for each in typical:
        usd = each.dollars
        sql = f"{usd['cloud_sql']:>11.2f}" if usd["cloud_sql"] else ""
        print(
            f"{each.name:42}{usd['durable']:>12.6f}{usd['temporal']:>16.6f}"
            f"{usd['step_functions']:>16.6f}{sql}"
        )
    print(workloads.SOURCES)


async def _rows(measures: Measures) -> Rows:
    rows: Rows = {}
    for measured in measures:
        rows.update(await measured())
    return rows


def _print(title: str, rows: Rows) -> None:
    print(f"\n{title:56}{'A':>7}{'B':>7}{'free':>7}{'4xx':>7}{'$/million':>11}")
    for name, count in rows.items():
        classes = (count.a, count.b, count.free, count.unbilled)
        numbers = "".join(f"{_short(value):>7}" for value in classes)
        print(f"{name:56}{numbers}{count.dollars_per_million:>11.2f}")


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _per_month(name: str) -> float | None:
    return next((times for unit, times in PER_MONTH.items() if unit in name), None)


def _figures(count: Count) -> dict[str, Any]:
    return {
        "requests": {verb: round(number, 3) for verb, number in sorted(count.items())},
        "class_a": round(count.a, 3),
        "class_b": round(count.b, 3),
        "free": round(count.free, 3),
        "unbilled": round(count.unbilled, 3),
        "usd_per_million": round(count.dollars_per_million, 3),
    }
