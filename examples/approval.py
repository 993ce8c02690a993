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
asked = anyio.Event()


@dataclass
class Approval:
    by: str


@step
async def ask_the_director(order: str) -> None:
    print(f"{order}: nobody said anything, asking the director")
    asked.set()


@workflow(events={"approval": Approval})
async def buy(order: str) -> str:
    winner, said = await select(approval=wait_event("approval"), late=sleep(TWO_DAYS))
    if winner == "late":
        await ask_the_director(order)
        said = await wait_event("approval")
    return f"{order}: approved by {said.by}"


async def director(client: Client) -> None:
    await asked.wait()
    handle = await client.get("A-2")
    await handle.send("approval", Approval("dora"), key="dora")


async def main() -> None:
    async with connect() as client, anyio.create_task_group() as people:
        first = await client.start(buy.options(id="A-1"), "A-1")
        await first.send("approval", Approval("ann"), key="ann")
        print(await client.run(buy.options(id="A-1"), "A-1"))
        people.start_soon(director, client)
        print(await client.run(buy.options(id="A-2"), "A-2"))


if __name__ == "__main__":
    anyio.run(main)
