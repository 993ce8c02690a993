"""Workflows that the tests of `durable.testing` run: one of each kind of call."""

from __future__ import annotations

import anyio

import durable
from durable import step, workflow
from durable.protocol.retries import Retry


@step
async def charge(order: str) -> str:
    return f"receipt for {order}"


@step
def pack(order: str, *, gift: bool = False) -> str:
    return f"{'gift' if gift else 'parcel'} {order}"


@step(retry=Retry(attempts=4, first="1h", factor=24.0, max="365d", jitter=False))
async def ship(parcel: str) -> str:
    return f"shipped {parcel}"


@step
async def slow(hours: float) -> float:
    await anyio.sleep(hours * 3600)
    return hours


@step
async def wait_for_ever() -> None:
    await anyio.sleep_forever()


@workflow
async def checkout(order: str) -> str:
    receipt = await charge(order)
    parcel = await pack.call(order, gift=True)
    return f"{receipt}, {await ship(parcel)}"


@workflow
def sync_checkout(order: str) -> str:
    return f"{pack(order)}, {pack(order, gift=True)}"


@workflow
async def side_by_side(orders: list[str]) -> list[str]:
    return await durable.map(charge, orders)


@workflow
async def one_slow(hours: float) -> float:
    return await slow(hours)


@workflow
async def never_ends() -> None:
    await wait_for_ever()
