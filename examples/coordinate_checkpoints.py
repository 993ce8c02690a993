"""Steps that are done are not done again, by hand: a claim per step, under a lease.

The claim is what counts. Should two workers ever do the same step, the first one's result is the
result for both. (`@workflow` and `@step` do all this, and more, by themselves.)

Run:     python examples/coordinate_checkpoints.py
Prints:
         fetch: done
         convert: done
         the worker dies
         fetch: found
         convert: found
         publish: done
         published convert(fetch(A-1))
"""

from collections.abc import Callable

import anyio

from durable import connect
from durable.client import Client


async def step(client: Client, job: str, name: str, work: Callable[[], str]) -> str:
    key = f"{job}/steps/{name}"
    found = await client.claims.get(key)
    if found is not None:
        print(f"{name}: found")
        return str(found.value)
    claim = await client.claim(key, work())
    print(f"{name}: {'done' if claim.won else 'found'}")
    return str(claim.value)


async def job(client: Client, order: str, *, dies: bool = False) -> str:
    async with client.hold(f"jobs/{order}", waiting=True):
        fetched = await step(client, order, "fetch", lambda: f"fetch({order})")
        converted = await step(client, order, "convert", lambda: f"convert({fetched})")
        if dies:
            raise SystemError("the worker dies")
        return await step(client, order, "publish", lambda: f"published {converted}")


async def main() -> None:
    async with connect() as client:
        try:
            await job(client, "A-1", dies=True)
        except SystemError as error:
            print(error)
        print(await job(client, "A-1"))


anyio.run(main)
