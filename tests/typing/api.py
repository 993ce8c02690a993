"""Right code: both type checkers accept every line of it. Never run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, assert_type
from uuid import UUID

from durable import (
    Retry,
    connect,
    current,
    gather,
    map,
    now,
    once,
    patched,
    publish,
    random,
    select,
    sleep,
    step,
    sync,
    testing,
    timeout,
    uuid,
    wait_event,
    workflow,
)
from durable.client import Client


@step
async def charge(order: str, cents: int) -> str:
    return f"{order}:{cents}:{current().idempotency_key}"


@step(attempts=5, name="mail")
def send_mail(to: str) -> int:
    return len(to)


def refund(order: str, cents: int, *, result: str | None) -> None: ...


@step(undo=refund)
async def pay(order: str, cents: int) -> str:
    return f"{order}:{cents}"


@workflow
async def checkout(order: str) -> str:
    receipt = await charge(order, 500)
    assert_type(await pay(order, 500), str)
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
        assert_type(await handle.cancel(reason="no"), Literal["requested", "finished"])
        assert_type(
            await handle.cancel(wait=True, timeout=60), Literal["completed", "failed", "cancelled"]
        )
        assert_type(await client.run(checkout, "A-1"), str)
        assert_type(await client.run(nightly, "2026-11-29"), int)


@step(process=True, timeout="5m", retry=Retry(first="1s", retry_if=lambda e: bool(e.args)))
def crunch(rows: list[int]) -> int:
    return sum(rows)


@step(at_most_once=True, heartbeat_timeout=timedelta(minutes=1))
async def guarded(order: str) -> str:
    current().heartbeat({"order": order})
    assert_type(current().cancelled, bool)
    assert_type(current().heartbeat_details, object)
    assert_type(await once(f"mail:{order}", charge, order, 500), str)
    return order


@step(durability="group")
def parsed(line: str) -> int:
    return int(line)


assert_type(parsed("1"), int)


@workflow(timeout="1d", version="2")
async def repeatable(order: str) -> str:
    publish("progress", 0.5)
    assert_type(now(), datetime)
    assert_type(random(), float)
    assert_type(uuid(key="order"), UUID)
    assert_type(patched("change", each_call=True), bool)
    assert_type(await crunch.options(timeout=5).call([1]), int)
    return await guarded(order)


async def watch(client: Client) -> None:
    handle = await client.start(repeatable.options(timeout="1h"), "A-1")
    assert_type(await handle.published(), dict[str, object])
    assert_type(await client.once("key", send_mail, "x"), int)


def script() -> None:
    with sync.connect() as client:
        assert_type(client.run(checkout, "A-1"), str)


async def async_test(env: testing.Environment) -> None:
    handle = await env.client.start(checkout, "A-1")
    await env.advance("365d")
    assert_type(await handle.result(), str)
    assert_type(await env.client.run(nightly, "2026-11-29"), int)
    await env.assert_steps(handle, ["charge.1"])
    assert_type(env.body_runs(handle), dict[str, int])
    async with testing.environment(seed=3, backend="trio") as other:
        assert_type(other, testing.Environment)


def sync_test(env: testing.BlockingEnvironment) -> None:
    handle = env.client.start(checkout, "A-1")
    env.advance(timedelta(days=365))
    assert_type(handle.result(), str)
    stub = env.stub(charge, returns="paid")
    assert_type(stub.calls, list[testing.StubCall])
    env.stub("mail", raises=OSError("no answer"))
    env.faults.delay("5s", "create", "*/steps/charge.1", times=2)
    with testing.environment(start=datetime(2031, 1, 1, tzinfo=UTC)) as other:
        assert_type(other, testing.BlockingEnvironment)


def crash_test() -> None:
    assert_type(testing.run(checkout, "A-1"), str)
    assert_type(testing.crash_at_every_call(nightly, "2026-11-29").value, int | None)
    tested = testing.crash_at_every_call.options(
        prepare=lambda env: env.stub(charge, returns="paid"),
        drive=lambda env, handle: env.advance("1d"),
    )
    assert_type(tested(checkout, "A-1"), testing.CrashReport[str])


@step
async def convert(name: str) -> str:
    return name


async def waits(client: Client) -> None:
    print(await client.run(checkout, "A-1"))  # in a place that takes anything
    assert_type(await wait_event("word", str, timeout="2d"), str)
    name, _ = await select(late=sleep("1h"), word=wait_event("word"))
    assert_type(name, str)
    child = await nightly.start("2026-11-29")
    assert_type(await child.result(), int)
    async with timeout(timedelta(minutes=5)):
        assert_type(await map(convert, ["A-1"], tolerate="10%"), list[str])
        await map(convert, ["A-1"], collect=True)
