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

from functools import partial
from typing import Any

import anyio

from durable import RunCancelled, connect, step, workflow
from durable.errors import SingletonTaken


async def show(word: str, on_conflict: Any, key: Any = "report", **options: Any) -> None:
    begun, may_end, ended = anyio.Event(), anyio.Event(), list[str]()

    @step(name=f"build to {word}")
    async def build(day: str) -> str:
        if day == "monday":
            begun.set()
            await may_end.wait()
        return f"{day}'s report"

    @workflow(name=word, singleton=key, on_conflict=on_conflict, **options)
    async def report(day: str) -> str:
        return await build(day)

    async def run(day: str) -> None:
        try:
            came: Any = await client.run(report.options(id=f"{word}-{day}"), day)
        except (SingletonTaken, RunCancelled) as e:
            came = f"{day} is {'cancelled' if isinstance(e, RunCancelled) else 'refused'}"
        ended.append(came or f"{day} is skipped because {came.holder} goes on")
        may_end.set()

    async with connect() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(run, "monday")
        await begun.wait()
        tasks.start_soon(run, "tuesday")
        if word in {"join", "wait", "queue"}:  # Tuesday's report comes only after Monday's
            await anyio.sleep(0.4)
            may_end.set()
    print(f"{word}: {', '.join(ended)}")  # in the order in which they ended


for word in ("raise", "skip", "join", "wait", "queue", "replace"):
    anyio.run(show, word, word)
anyio.run(partial(show, "a lock for 1 s", "queue", lock_ttl=1))
anyio.run(show, "a key for each day", "raise", "{0}".format)  # of the arguments, the day
