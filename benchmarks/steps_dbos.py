"""Steps of DBOS: `python steps_dbos.py run|sync|postgres|postgres-sync SHAPE`.

Its database is the SQLite file that it makes by default, or the PostgreSQL of BENCH_DATABASE.

- `run`: async workflow and async steps, called in this process.
- `sync`: sync workflow and sync steps, in this thread or, if there are several runs, in threads.
"""

from __future__ import annotations

import os
from importlib.metadata import version

import anyio
import anyio.to_thread
from dbos import DBOS, DBOSConfig
from shapes import WARM_UP, Meter, Shape, asked, each_run

config: DBOSConfig = {
    "name": "benchmark", "log_level": "ERROR", "console_log_level": "ERROR",
}  # fmt: skip
if database := os.environ.get("BENCH_DATABASE"):
    config["system_database_url"] = database
DBOS(config=config)


@DBOS.step()
async def double(number: int) -> int:
    return 2 * number


@DBOS.workflow()
async def count(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await double(number)
    return total


@DBOS.step()
def sync_double(number: int) -> int:
    return 2 * number


@DBOS.workflow()
def sync_count(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += sync_double(number)
    return total


async def carry(variant: str, shape: Shape) -> None:
    if variant == "run":
        await each_run(shape, lambda _: count(shape.steps))
    elif shape.runs == 1:
        sync_count(shape.steps)
    else:
        threads = anyio.CapacityLimiter(shape.at_once)
        await each_run(
            shape,
            lambda _: anyio.to_thread.run_sync(sync_count, shape.steps, limiter=threads),
        )


async def main() -> None:
    variant, shape = asked()
    variant = variant.removeprefix("postgres").removeprefix("-") or "run"
    DBOS.launch()
    await carry(variant, WARM_UP)
    with Meter() as meter:
        await carry(variant, shape)
    DBOS.destroy()
    meter.report(version=version("dbos"))


if __name__ == "__main__":
    anyio.run(main)
