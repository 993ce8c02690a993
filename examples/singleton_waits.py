"""How long a run waits for its turn: for ever, for a time, or for some attempts; it is parked.

Run:     python examples/singleton_waits.py
Prints:
         for ever: monday's report, tuesday's report
         for 200 ms: tuesday gives up after 0.2 s, monday's report
         for 3 attempts: tuesday gives up after 0.2 s, monday's report
         for 3 attempts, soon done: monday's report, tuesday's report
"""

from typing import Any

import anyio

from durable import RunFailed, connect, step, workflow


async def show(words: str, *, gives_up: bool, **options: Any) -> None:
    begun, may_end, ended = anyio.Event(), anyio.Event(), list[str]()

    @step(name=f"build for {words}")
    async def build(day: str) -> str:
        if day == "monday":
            begun.set()
            await may_end.wait()
        return f"{day}'s report"

    @workflow(name=words, singleton="report", on_conflict="wait", **options)
    async def report(day: str) -> str:
        return await build(day)

    async def run(day: str) -> None:
        async with connect() as client:
            try:
                ended.append(await client.run(report, day))
            except RunFailed as failed:  # its cause is SingletonTaken, which names the holder
                waited = str(failed.__cause__).partition("after waiting ")[2].partition(":")[0]
                ended.append(f"{day} gives up after {waited}")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, "monday")
        await begun.wait()
        if gives_up:  # while Monday's report is being built
            await run("tuesday")
        else:
            tasks.start_soon(run, "tuesday")
            await anyio.sleep(0.4)
        may_end.set()
    print(f"for {words}: {', '.join(ended)}")  # in the order in which they ended


async def main() -> None:
    await show("ever", gives_up=False)
    await show("200 ms", gives_up=True, max_wait=0.2)
    await show("3 attempts", gives_up=True, max_attempts=3, attempt_every=0.1)
    await show("3 attempts, soon done", gives_up=False, max_attempts=3, attempt_every=2)


anyio.run(main)
