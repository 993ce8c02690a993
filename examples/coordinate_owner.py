"""A worker owns a run while it works on it; what it writes carries its epoch.

`hold` cancels the block if the lease is lost. The epoch is for the rest of the world: a ledger
that refuses lower epochs is safe even from an owner that does not know yet that it lost.

Run:     python examples/coordinate_owner.py
Prints:
         a owns run-1, epoch 1
         b is told: held by a
         b owns run-1, epoch 2
         the ledger refuses a: epoch 1 is over
         ledger: {'epoch': 2, 'lines': ['written by a', 'written by b']}
"""

from typing import Any

import anyio

from durable import connect
from durable.client import Client
from durable.errors import LeaseTaken


async def write(client: Client, epoch: int, line: str) -> None:
    """As any outside system can: refuse whoever comes with less than the highest epoch seen."""

    def append(ledger: dict[str, Any] | None) -> dict[str, Any]:
        ledger = ledger or {"epoch": 0, "lines": []}
        if epoch < ledger["epoch"]:
            raise PermissionError(f"epoch {epoch} is over")
        return {"epoch": epoch, "lines": [*ledger["lines"], line]}

    await client.doc("ledger").update(append)


async def main() -> None:
    async with connect() as a, connect() as b:
        async with a.hold("runs/run-1", label="a", waiting=True) as lease:
            print(f"a owns run-1, epoch {lease.epoch}")
            await write(a, lease.epoch, "written by a")
            try:
                async with b.hold("runs/run-1", label="b"):
                    print("never here")
            except LeaseTaken:
                entry = await b.leases.get("runs/run-1")
                print(f"b is told: held by {entry.label if entry else 'nobody'}")
        async with b.hold("runs/run-1", label="b", waiting=True, timeout=30) as second:
            print(f"b owns run-1, epoch {second.epoch}")
            await write(b, second.epoch, "written by b")
            try:
                await write(a, lease.epoch, "written by a, too late")
            except PermissionError as error:
                print(f"the ledger refuses a: {error}")
        found = await a.doc("ledger").read()
        print("ledger:", found.value if found else None)


anyio.run(main)
