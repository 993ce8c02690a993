"""A run with a long record goes on: `python resume_durable.py run STEPS`, on BENCH_STORE.

Its record is written straight into the store. The clock runs from `client.run` to the body of the
first step that is not recorded.
"""

from __future__ import annotations

import sys
import time

import anyio
import prepared
from shapes import URL, Meter, cpu_seconds, resident_mb

from durable import connect, step, workflow

LIVE = 4000  # steps that follow, to see what each of them leaves in memory
SETTLED = 1000  # of these, before which caches still fill

_first: list[tuple[float, float]] = []  # wall and CPU seconds when the first body began
_memory: list[float] = []


@step(name="resume.double")
async def double(number: int) -> int:
    if not _first:
        _first.append((time.perf_counter(), cpu_seconds()))
    return 2 * number


@workflow(name="resume.count")
async def count(recorded: int, live: int) -> int:
    total = 0
    for number in range(recorded + live):
        total += await double(number)
        if number - recorded in {SETTLED, live - 1}:
            _memory.append(resident_mb())
    return total


async def main() -> None:
    recorded = int(sys.argv[2])
    live = LIVE if URL.startswith("sqlite") else 1
    async with connect(URL) as client:
        store = client.store
        await client.run(count.options(id="warm"), 0, 10)
        _first.clear()
        _memory.clear()
        record = (
            prepared.outcome(store, double, n, 2 * (n - 1), n - 1) for n in range(1, recorded + 1)
        )
        await prepared.write_run(
            store, "long", prepared.request(store, count, recorded, live), record
        )
        calls = prepared.counted(store)
        before = resident_mb()
        wall, cpu = time.perf_counter(), cpu_seconds()
        with Meter() as meter:
            await client.run(count.options(id="long"), recorded, live)
    ((then, spent),) = _first
    grown = _memory[-1] - _memory[0] if len(_memory) > 1 else 0.0
    meter.wall, meter.cpu = then - wall, spent - cpu
    meter.report(
        lists=calls["list"], reads=calls["read"], memory_mb=_memory[0] - before if _memory else 0.0,
        bytes_per_live_step=1048576 * grown / (LIVE - SETTLED - 1),
    )  # fmt: skip


if __name__ == "__main__":
    anyio.run(main)
