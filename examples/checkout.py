"""A checkout of five steps, each about a second long. Press Ctrl-C in the middle, run it again.

Run:     durable run examples/checkout.py:checkout --id order-1 --input '{"order": "A-1"}'
Prints:
         A-1: 2 items reserved
         A-1: 4200 cents charged
         A-1: invoice written
         A-1: parcel handed over
         A-1: customer told
         "PARCEL-A-1"
"""

import anyio

from durable import step, workflow


@step
async def reserve(order: str) -> int:
    await anyio.sleep(1)
    print(f"{order}: 2 items reserved")
    return 2


@step
async def charge(order: str, items: int) -> int:
    await anyio.sleep(1)
    cents = items * 2100
    print(f"{order}: {cents} cents charged")
    return cents


@step
async def write_invoice(order: str, cents: int) -> str:
    await anyio.sleep(1)
    print(f"{order}: invoice written")
    return f"{order}: {cents / 100:.2f} EUR"


@step
async def hand_over(order: str) -> str:
    await anyio.sleep(1)
    print(f"{order}: parcel handed over")
    return f"PARCEL-{order}"


@step
async def tell_customer(order: str, invoice: str, parcel: str) -> None:
    await anyio.sleep(1)
    print(f"{order}: customer told")


@workflow
async def checkout(order: str) -> str:
    items = await reserve(order)
    cents = await charge(order, items)
    invoice = await write_invoice(order, cents)
    parcel = await hand_over(order)
    await tell_customer(order, invoice, parcel)
    return parcel
