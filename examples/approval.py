"""An order waits two days for a manager, then goes to the director.

The two days are parked: no memory, no worker, no store call. Here they are cut to half a second.

Run:     python examples/approval.py
Prints:
         A-1: approved by ann
         A-2: nobody said anything, asking the director
         A-2: approved by dora
"""

from dataclasses import dataclass

import anyio

from durable import connect, select, sleep, step, wait_event, workflow
from durable.client import Client

TWO_DAYS = 0.5  # seconds; "2d" where people decide


@dataclass
class Approval:
    by: str


@step
async def ask_the_director(order: str) -> None:
    print(f"{order}: nobody said anything, asking the director")


@workflow(events={"approval": Approval})
async def buy(order: str) -> str:
    winner, said = await select(approval=wait_event("approval"), late=sleep(TWO_DAYS))
    if winner == "late":
        await ask_the_director(order)
        said = await wait_event("approval")
    return f"{order}: approved by {said.by}"


async def approve(client: Client, order: str, by: str, after: float) -> None:
    await anyio.sleep(after)
    handle = await client.get(order)
    await handle.send("approval", Approval(by), key=by)


async def main() -> None:
    async with connect() as client, anyio.create_task_group() as people:
        people.start_soon(approve, client, "A-1", "ann", 0.2)
        said = await client.run(buy.options(id="A-1"), "A-1")
        print(said)
        people.start_soon(approve, client, "A-2", "dora", 1.5)
        said = await client.run(buy.options(id="A-2"), "A-2")
        print(said)


if __name__ == "__main__":
    anyio.run(main)
