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

begun: dict[str, anyio.Event] = {}


@step
async def build(day: str, seconds: float) -> str:
    begun[day].set()
    await anyio.sleep(seconds)
    return f"{day}'s report"


async def show(words: str, *, monday: float = 2, **options: Any) -> None:
    @workflow(name=words, singleton="report", on_conflict="wait", **options)
    async def report(day: str, seconds: float) -> str:
        return await build(day, seconds)

    ended: list[str] = []
    begun.update(monday=anyio.Event(), tuesday=anyio.Event())

    async def run(day: str, seconds: float) -> None:
        async with connect() as client:
            try:
                ended.append(await client.run(report, day, seconds))
            except RunFailed as failed:  # its cause is SingletonTaken, which names the holder
                waited = str(failed.__cause__).partition("after waiting ")[2].partition(":")[0]
                ended.append(f"{day} gives up after {waited}")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, "monday", monday)
        await begun["monday"].wait()
        tasks.start_soon(run, "tuesday", 0.1)
    print(f"for {words}: {', '.join(ended)}")  # in the order in which they ended


async def main() -> None:
    await show("ever")
    await show("200 ms", max_wait=0.2)
    await show("3 attempts", max_attempts=3, attempt_every=0.1)
    await show("3 attempts, soon done", monday=0.4, max_attempts=3, attempt_every=2)


anyio.run(main)
