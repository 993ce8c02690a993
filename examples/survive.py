"""A step that fails is tried again; a run asked for twice runs once.

Run:     python examples/survive.py
Prints:
         attempt 1: the bank is closed
         attempt 2: the bank is closed
         attempt 3: charged
         run order-1 returned receipt-3
         asked again, nothing runs: receipt-3
"""

import anyio

from durable import connect, current, step, workflow


@step(attempts=5)
async def charge(order: str) -> str:
    attempt = current().attempt
    if attempt < 3:
        print(f"attempt {attempt}: the bank is closed")
        raise ConnectionError("the bank is closed")
    print(f"attempt {attempt}: charged")
    return f"receipt-{attempt}"


@workflow
async def pay(order: str) -> str:
    return await charge(order)


async def main() -> None:
    async with connect() as client:
        receipt = await client.run(pay.options(id="order-1"), "A-1")
        print(f"run order-1 returned {receipt}")
        again = await client.run(pay.options(id="order-1"), "A-1")
        print(f"asked again, nothing runs: {again}")


if __name__ == "__main__":
    anyio.run(main)
