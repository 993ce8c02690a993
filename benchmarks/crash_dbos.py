"""A run of DBOS that is killed and goes on: `python crash_dbos.py sqlite|postgres START`.

It recovers the workflows of its own executor when it is launched again. A second process that
is alive when the first one dies does not: that takes DBOS's Conductor, or a call by hand.
"""

from __future__ import annotations

import asyncio
import os
from importlib.metadata import version
from pathlib import Path

import crash
from dbos import DBOS, DBOSConfig, SetWorkflowID

config: DBOSConfig = {
    "name": "recovery", "log_level": "ERROR", "console_log_level": "ERROR",
}  # fmt: skip
if database := os.environ.get("BENCH_DATABASE"):
    config["system_database_url"] = database
DBOS(config=config)
RUN = Path.cwd().name  # a database of all rounds knows each folder's run by itself


@DBOS.step()
async def one(number: int) -> int:
    crash.die_once(number)
    await asyncio.sleep(crash.SECONDS)
    return number


@DBOS.workflow()
async def all_of_them(steps: int) -> int:
    return sum([await one(number) for number in range(steps)])


async def main() -> None:
    crash.note("up")
    again = crash.KILLED.exists()
    DBOS.launch()
    if again:
        await (await DBOS.retrieve_workflow_async(RUN)).get_result()
    else:
        with SetWorkflowID(RUN):
            await all_of_them(crash.STEPS)
    DBOS.destroy()
    crash.note(f"end-{version('dbos')}")


if __name__ == "__main__":
    asyncio.run(main())
