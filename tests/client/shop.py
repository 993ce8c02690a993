"""Workflows for the tests of the client, which note each body that runs."""

from __future__ import annotations

import anyio

from durable import step, workflow

ran: list[str] = []  # one line for each body
gates: dict[str, Gate] = {}  # by order: its delivery waits there


class Gate:
    """Where a delivery stops until it is let through."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.open = anyio.Event()


def gate(order: str) -> Gate:
    """Stop the deliveries of this order from now on."""
    gates[order] = Gate()
    return gates[order]


@step
async def charge(order: str) -> str:
    ran.append(f"charge {order}")
    return f"receipt {order}"


@step
async def deliver(order: str) -> int:
    ran.append(f"deliver {order}")
    if order in gates:
        gates[order].reached.set()
        await gates[order].open.wait()
    return len(order)


@step(attempts=1)
async def refuse(order: str) -> None:
    ran.append(f"refuse {order}")
    raise PermissionError(f"no {order} here")


@step
def weigh(order: str) -> int:
    return len(order)


@workflow(name="shop.checkout")
async def checkout(order: str, express: bool = False) -> tuple[str, int]:
    return await charge(order), await deliver(order)


@workflow(name="shop.refused")
async def refused(order: str) -> None:
    await charge(order)
    await refuse(order)


@workflow(name="shop.other")
async def other(order: str) -> str:
    return order


@workflow(name="shop.nightly")
def nightly(day: str) -> int:
    return weigh(day)
