"""Workflows that the tests of `durable.testing` run: one of each kind of call."""

from __future__ import annotations

import anyio

import durable
from durable import step, workflow
from durable.protocol.retries import Retry
from tests.virtual_time import virtual_seconds


@step
async def invoice(order: str) -> str:
    return f"receipt for {order}"


@step
def wrap_up(order: str, *, gift: bool = False) -> str:
    return f"{'gift' if gift else 'parcel'} {order}"


@step(retry=Retry(attempts=4, first="1h", factor=24.0, max="365d", jitter=False))
async def courier(parcel: str) -> str:
    return f"shipped {parcel}"


@step
async def ponder(hours: float) -> float:
    await virtual_seconds(hours * 3600)
    return hours


@step
async def stall() -> None:
    await anyio.sleep_forever()


@workflow
async def place_order(order: str) -> str:
    receipt = await invoice(order)
    parcel = await wrap_up.call(order, gift=True)
    return f"{receipt}, {await courier(parcel)}"


@workflow
def sync_order(order: str) -> str:
    return f"{wrap_up(order)}, {wrap_up(order, gift=True)}"


@workflow
async def invoice_all(orders: list[str]) -> list[str]:
    return await durable.map(invoice, orders)


@workflow
async def ponder_once(hours: float) -> float:
    return await ponder(hours)


@workflow
async def stall_once() -> None:
    await stall()


@workflow
async def remind(who: str) -> str:
    await durable.sleep("365d")
    return f"{await invoice(who)} after a year"


@workflow
async def approve(order: str) -> str:
    try:
        answer = await durable.wait_event("approval", timeout="7d")
    except TimeoutError:
        answer = "nobody"
    return f"{await invoice(order)}, approved by {answer}"


@workflow
async def approve_twice(order: str) -> str:
    first = await durable.wait_event("approval")
    await durable.sleep("1d")
    second = await durable.wait_event("approval")
    return f"{order} approved by {first} and {second}"


@workflow(name="test_schedules", schedule=durable.every("1d"))
async def daily() -> None:
    await invoice("daily")


@workflow
async def deliver_part(part: str) -> str:
    await durable.sleep("1d")
    return await invoice(part)


@workflow
async def deliver_all() -> str:
    part = await deliver_part.start("one")
    return f"{await invoice('two')}, {await part.result()}"
