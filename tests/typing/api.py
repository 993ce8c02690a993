"""Right code: both type checkers accept every line of it. Never run."""

from __future__ import annotations

from typing import assert_type

from durable import connect, current, gather, map, step, sync, workflow


@step
async def charge(order: str, cents: int) -> str:
    return f"{order}:{cents}:{current().idempotency_key}"


@step(attempts=5, name="mail")
def send_mail(to: str) -> int:
    return len(to)


@workflow
async def checkout(order: str) -> str:
    receipt = await charge(order, 500)
    assert_type(receipt, str)
    assert_type(await send_mail.call("x"), int)
    one, two = await gather(charge("b", 1), send_mail.call("c"))
    assert_type(one, str)
    assert_type(two, int)
    assert_type(await map(send_mail, ["x", "y"], limit=10), list[int])
    return receipt


@workflow
def nightly(day: str) -> int:
    return send_mail(day)


async def main() -> None:
    async with connect() as client:
        handle = await client.start(checkout.options(id="order-1"), "A-1")
        assert_type(await handle.result(timeout=60), str)
        assert_type(await client.run(checkout, "A-1"), str)
        assert_type(await client.run(nightly, "2026-11-29"), int)


def script() -> None:
    with sync.connect() as client:
        assert_type(client.run(checkout, "A-1"), str)
