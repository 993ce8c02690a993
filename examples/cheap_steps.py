"""Cheap steps recorded together: a thousand outputs in a few objects, all before the next step.

Run:     python examples/cheap_steps.py
Prints:
         sampled 1,000 numbers, reported once
         recorded: 1,001 calls
"""

import random

import anyio

from durable import connect, step, workflow


@step(durability="group")
async def sample() -> float:
    """Another number each time: recorded, so that a replay sees the same."""
    return random.random()


@step
async def report(numbers: int) -> str:
    """By now all that it is told is recorded."""
    return f"sampled {numbers:,} numbers, reported once"


@workflow
async def survey(numbers: int) -> str:
    total = sum([await sample() for _ in range(numbers)])
    return await report(numbers) if total else "nothing sampled"


async def main() -> None:
    async with connect() as client:
        handle = await client.start(survey, 1000)
        print(await client.run(survey.options(id=handle.id), 1000))
        print(f"recorded: {len(await handle.steps()):,} calls")


if __name__ == "__main__":
    anyio.run(main)
