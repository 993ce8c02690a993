"""A request that arrives three times starts one run: exactly-once dispatch by idempotency key.

The claim decides which run a key means; starting that run twice is starting it once. So it is
right even if whoever made the claim dies before it starts anything: the next one starts it.

Run:     python examples/coordinate_dispatch.py
Prints:
         A-1: card charged
         3 deliveries, 1 run, 1 winner
         every answer: receipt A-1
"""

import anyio

from durable import connect, step, workflow
from durable.client import Client


@step
async def charge(order: str) -> str:
    print(f"{order}: card charged")
    return f"receipt {order}"


@workflow
async def pay(order: str) -> str:
    return await charge(order)


async def deliver(client: Client, delivery: int, seen: list[tuple[bool, str, str]]) -> None:
    proposed = f"pay-{delivery}"  # each would use an id of its own
    claim = await client.claim("requests/key-7f3a", proposed)
    receipt = await client.run(pay.options(id=claim.value), "A-1")
    seen.append((claim.won, claim.value, receipt))


async def main() -> None:
    seen: list[tuple[bool, str, str]] = []
    async with connect() as client, anyio.create_task_group() as tasks:
        for delivery in range(3):
            tasks.start_soon(deliver, client, delivery, seen)

    runs = {run for _, run, _ in seen}
    print(f"{len(seen)} deliveries, {len(runs)} run, {sum(won for won, _, _ in seen)} winner")
    print("every answer:", *{receipt for _, _, receipt in seen})


anyio.run(main)
