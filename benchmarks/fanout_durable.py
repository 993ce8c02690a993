"""One run that maps a step over many items: `python fanout_durable.py map ITEMS`."""

from __future__ import annotations

import sys

import anyio
from shapes import URL, Meter, peak_mb, resident_mb

import durable
from durable import connect, step, workflow

LIMIT = 64  # items under way at a time


@step(name="fanout.double")
async def double(number: int) -> int:
    return 2 * number


@workflow(name="fanout.all")
async def all_of_them(items: int) -> int:
    return sum(await durable.map(double, range(items), limit=LIMIT))


async def main() -> None:
    items = int(sys.argv[2])
    async with connect(URL) as client:
        await client.run(all_of_them, 10)
        before = resident_mb()
        with Meter() as meter:
            assert await client.run(all_of_them, items) == items * (items - 1)
    meter.report(before_mb=before, peak_mb=peak_mb())


if __name__ == "__main__":
    anyio.run(main)
