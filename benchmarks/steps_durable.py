"""Steps of durable: `python steps_durable.py run|sync|worker SHAPE`, on SQLite or BENCH_STORE.

- `run`: `client.run` in one process, as a script or a web service does; async steps.
- `sync`: the same with a sync workflow, whose steps are plain functions, in threads.
- `worker`: `client.start`, then a worker that holds as many runs at once as the shape says.
"""

from __future__ import annotations

import anyio
from shapes import URL, WARM_UP, Lag, Meter, Shape, asked, each_run

from durable import connect, step, workflow
from durable.client import Client
from durable.decorators import workflows
from durable.runtime.identity import Options
from durable.runtime.worker import Worker


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def count(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await double(number)
    return total


@step
def sync_double(number: int) -> int:
    return 2 * number


@workflow
def sync_count(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += sync_double(number)
    return total


async def carry(client: Client, variant: str, shape: Shape) -> None:
    if variant == "worker":
        await each_run(shape, lambda _: client.start(count, shape.steps))
        options = Options(concurrency=shape.at_once)
        await Worker(client.store, workflows(), options).run(until_idle=True)
    else:
        function = sync_count if variant == "sync" else count
        await each_run(shape, lambda _: client.run(function, shape.steps))


async def main() -> None:
    variant, shape = asked()
    async with connect(URL) as client:
        await carry(client, variant, WARM_UP)
        async with Lag(shape) as lag:
            with Meter() as meter:
                await carry(client, variant, shape)
    meter.report(**lag.figures())


if __name__ == "__main__":
    anyio.run(main)
