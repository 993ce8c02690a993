"""Each way of stepping aside: Tuesday's report is started while Monday's is being built.

Run:     python examples/singletons.py
Prints:
         raise: tuesday is refused, monday's report
         skip: tuesday is skipped because skip-monday goes on, monday's report
         join: monday's report, monday's report
         wait: monday's report, tuesday's report
         queue: monday's report, tuesday's report
         replace: monday is cancelled, tuesday's report
         a lock for 1 s: tuesday's report, monday's report
         a key for each day: tuesday's report, monday's report
"""

from typing import Any

import anyio

from durable import RunCancelled, Skipped, connect, step, workflow
from durable.errors import SingletonTaken


@step
async def build(day: str, seconds: float) -> str:
    await anyio.sleep(seconds)
    return f"{day}'s report"


async def show(word: str, on_conflict: Any, key: Any = "report", **options: Any) -> None:
    @workflow(name=word, singleton=key, on_conflict=on_conflict, **options)
    async def report(day: str, seconds: float) -> str:
        return await build(day, seconds)

    ended: list[str] = []

    async def run(day: str, seconds: float) -> None:
        async with connect() as client:
            try:
                came = await client.run(report.options(id=f"{word}-{day}"), day, seconds)
            except (SingletonTaken, RunCancelled) as e:
                came = f"{day} is {'cancelled' if isinstance(e, RunCancelled) else 'refused'}"
        if isinstance(came, Skipped):
            came = f"{day} is skipped because {came.holder} goes on"
        ended.append(came)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, "monday", 0.8 if "ttl" not in str(options) else 3)
        await anyio.sleep(0.4)
        tasks.start_soon(run, "tuesday", 0.1)
    print(f"{word}: {', '.join(ended)}")  # in the order in which they ended


async def main() -> None:
    for word in ("raise", "skip", "join", "wait", "queue", "replace"):
        await show(word, word)
    await show("a lock for 1 s", "queue", lock_ttl=1)
    await show("a key for each day", "raise", "{0}".format)  # of the arguments, the day


anyio.run(main)
