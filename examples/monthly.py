"""A workflow that lives for a year: a reminder on the first of each month.

It is started once and sleeps twelve times, parked: on a bucket a month of it costs nothing. Here
durable.testing lets the year pass at once.

Run:     python examples/monthly.py
Prints:
         January: pay the rent
         February: pay the rent
         ...
         December: pay the rent
         12 reminders in a year
"""

from datetime import UTC, datetime

import anyio

from durable import sleep_until, step, workflow
from durable.testing import environment


@step
async def remind(month: str) -> None:
    print(f"{month}: pay the rent")


@workflow
async def rent(year: int) -> str:
    for month in range(1, 13):
        first = datetime(year, month, 1, tzinfo=UTC)
        await sleep_until(first)
        await remind(f"{first:%B}")
    return "12 reminders in a year"


async def main() -> None:
    async with environment() as env:
        said = await env.client.run(rent, 2024)
    print(said)


if __name__ == "__main__":
    anyio.run(main)
