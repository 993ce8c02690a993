"""Whether a step has become dearer: CPU time of `client.run` over that of its floor.

`python benchmarks/gate.py` fails if the median of the rounds is more than a quarter above what
it was when `USUAL` was set. Both sides run in this process, in turns, on a store in memory, and
only processor time is compared: what else the machine does meets both alike.
"""

from __future__ import annotations

import os
import statistics
import sys

os.environ["BENCH_STORE"] = "memory:gate"

import anyio
import anyio.abc
import steps_durable
import steps_floor
from shapes import Meter, Shape

from durable import connect
from durable.client import Client

ROUNDS = 5
SHAPES = {
    "one run of 400 steps": Shape(1, 400, 1),
    "40 runs of 10 steps, 20 at once": Shape(40, 10, 20),
}
USUAL = {"one run of 400 steps": 4.0, "40 runs of 10 steps, 20 at once": 3.25}
MARGIN = 1.25


def main() -> int:
    """Measure and compare; returns the exit code."""
    found = anyio.run(_measure)
    dearer = False
    for name, ratios in found.items():
        median, limit = statistics.median(ratios), USUAL[name] * MARGIN
        dearer |= median > limit
        rounds = ", ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
        print(
            f"{name}: {median:.2f} times the CPU of the floor ({rounds}); "
            f"{USUAL[name]:.2f} is usual, {limit:.2f} the most"
        )
    if dearer:
        print("a step costs more than it did: profile it, or set USUAL anew and say why")
    return 1 if dearer else 0


async def _measure() -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in SHAPES}
    async with connect(steps_durable.URL) as client, anyio.create_task_group() as leaving:
        for number in range(-1, ROUNDS):  # the first one warms up
            for name, shape in SHAPES.items():
                ratio = await _ratio(client, leaving, shape, f"g{number + 1}{shape.runs:03}")
                if number >= 0:
                    found[name].append(ratio)
    return found


async def _ratio(client: Client, leaving: anyio.abc.TaskGroup, shape: Shape, name: str) -> float:
    with Meter() as own:
        await steps_durable.carry(client, "run", shape)
    with Meter() as floor:
        await steps_floor.carry(client.store, leaving, shape, name)
    return own.cpu / floor.cpu


if __name__ == "__main__":
    sys.exit(main())
