"""One run of cheap steps: `python group_durable.py each|group|sync STEPS`.

- `each`: every output is recorded by itself.
- `group`: recorded together, `@step(durability="group")`; `sync`: a sync workflow of such steps.
"""

from __future__ import annotations

import sys

import anyio
from shapes import URL, Meter

from durable import connect, step, workflow


@step(name="group.each")
async def each(number: int) -> int:
    return 2 * number


@step(name="group.group", durability="group")
async def grouped(number: int) -> int:
    return 2 * number


@step(name="group.sync", durability="group")
def grouped_sync(number: int) -> int:
    return 2 * number


@workflow(name="group.run")
async def doubles(variant: str, steps: int) -> int:
    double = each if variant == "each" else grouped
    return sum([await double(number) for number in range(steps)])


@workflow(name="group.run sync")
def doubles_sync(steps: int) -> int:
    return sum(grouped_sync(number) for number in range(steps))


async def main() -> None:
    variant, steps = sys.argv[1], int(sys.argv[2])

    async def carry(steps: int) -> int:
        if variant == "sync":
            return await client.run(doubles_sync, steps)
        return await client.run(doubles, variant, steps)

    async with connect(URL) as client:
        await carry(10)
        with Meter() as meter:
            assert await carry(steps) == steps * (steps - 1)
    meter.report()


if __name__ == "__main__":
    anyio.run(main)
