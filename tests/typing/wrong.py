"""Wrong code: both type checkers reject each line marked `error`, and no other. Never run."""

from __future__ import annotations

from durable import connect, step, testing, workflow


@step
async def charge(order: str, cents: int) -> str:
    return f"{order}:{cents}"


@step(durability="some")  # error
def parse(line: str) -> int:
    return int(line)


@workflow
async def checkout(order: str) -> str:
    await charge(order, "500")  # error
    await charge(order)  # error
    cents: int = await charge(order, 500)  # error
    return str(cents)


async def main() -> None:
    async with connect() as client:
        await client.start(checkout, 1)  # error
        await client.run(checkout.options(id=1), "A-1")  # error


def test() -> None:
    testing.run(checkout, 1)  # error
    testing.crash_at_every_call(checkout)  # error
    with testing.environment(backend="twisted") as env:  # error
        env.stub(3, returns=1)  # error
        env.faults.fail("erase")  # error
