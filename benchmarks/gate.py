"""Whether a step has become dearer: CPU time of `client.run` over that of its floor.

`python benchmarks/gate.py` fails if the ratio is more than a quarter above what it was when
`USUAL` was set. Both sides run in this process, in turns, on a store in memory, and only processor
time is compared. What else the machine does adds to that time and takes nothing from it: of each
side its cheapest round counts, and where that seems too dear there are more rounds.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

os.environ["BENCH_STORE"] = "memory:gate"

import anyio
import anyio.abc
import steps_durable
import steps_floor
from shapes import Meter, Shape

from durable import connect
from durable.client import Client
from durable.store import Store

ROUNDS, ROUNDS_MAX = 10, 40
SHAPES = {
    "one run of 400 steps": Shape(1, 400, 1),
    "40 runs of 10 steps, 20 at once": Shape(40, 10, 20),
}
USUAL = {"one run of 400 steps": 4.0, "40 runs of 10 steps, 20 at once": 3.25}
MARGIN = 1.25


@dataclass
class Least:
    """The least CPU time of a round so far, in seconds, of either side."""

    own: float = math.inf
    floor: float = math.inf

    @property
    def ratio(self) -> float:
        return self.own / self.floor


def main() -> int:
    """Measure and compare; returns the exit code."""
    found, rounds = anyio.run(_measure)
    for name, least in found.items():
        print(
            f"{name}: {least.ratio:.2f} times the CPU of the floor ({1000 * least.own:.0f} to "
            f"{1000 * least.floor:.0f} ms, the least of {rounds} rounds); "
            f"{USUAL[name]:.2f} is usual, {USUAL[name] * MARGIN:.2f} the most"
        )
    if _dearer(found):
        print("a step costs more than it did: profile it, or set USUAL anew and say why")
        return 1
    return 0


def _dearer(found: Mapping[str, Least]) -> bool:
    return any(least.ratio > USUAL[name] * MARGIN for name, least in found.items())


async def _measure() -> tuple[dict[str, Least], int]:
    found = {name: Least() for name in SHAPES}
    rounds = 0
    async with connect(steps_durable.URL) as client, anyio.create_task_group() as leaving:
        await _round(client, leaving, {name: Least() for name in SHAPES}, rounds)  # warms up
        while rounds < ROUNDS or (rounds < ROUNDS_MAX and _dearer(found)):
            rounds += 1
            await _round(client, leaving, found, rounds)
    return found, rounds


async def _round(
    client: Client, leaving: anyio.abc.TaskGroup, found: Mapping[str, Least], number: int
) -> None:
    for name, shape in SHAPES.items():
        with Meter() as own:
            await steps_durable.carry(client, "run", shape)
        with Meter() as floor:
            # A store of its own, for the client's looks at the settings before it writes.
            store = Store(client.store.backend)
            await steps_floor.carry(store, leaving, shape, f"g{number:02}{shape.runs:03}")
        least = found[name]
        least.own, least.floor = min(least.own, own.cpu), min(least.floor, floor.cpu)


if __name__ == "__main__":
    sys.exit(main())
