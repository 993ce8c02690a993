"""Three hosts have the same schedule, and each tick fires on one of them.

The key is the moment at which the tick is due, not the moment at which somebody looked; so hosts
whose clocks differ, or that come late, still mean the same tick.

Run:     python examples/coordinate_cron.py
Prints:
         2026-11-29T03:00Z fired once
         2026-11-29T04:00Z fired once
         2026-11-29T05:00Z fired once
         the record has 3 ticks
"""

from collections import Counter
from datetime import UTC, datetime, timedelta

import anyio

from durable import connect

FIRST = datetime(2026, 11, 29, 3, tzinfo=UTC)
EVERY = timedelta(hours=1)


async def host(name: str, now: datetime, fired: Counter[str]) -> None:
    """Fire whatever is due by this host's clock."""
    async with connect() as client:
        due = FIRST
        while due <= now:
            tick = f"{due:%Y-%m-%dT%H:%MZ}"
            if (await client.claim(f"ticks/report/{tick}", name, label=name)).won:
                fired[tick] += 1  # here the work is started, under the tick as its id
            due += EVERY


async def main() -> None:
    fired: Counter[str] = Counter()
    now = FIRST + 2 * EVERY
    async with anyio.create_task_group() as tasks:
        for number, name in enumerate(["a", "b", "c"]):
            tasks.start_soon(host, name, now + timedelta(minutes=number), fired)

    for tick in sorted(fired):
        print(tick, "fired once" if fired[tick] == 1 else f"fired {fired[tick]} times")
    async with connect() as client:
        print(f"the record has {len([c async for c in client.claims.list('ticks/report/')])} ticks")


anyio.run(main)
