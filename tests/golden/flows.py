"""The workflows of the golden histories. What is written here never changes: add, do not edit."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import anyio

from durable import gather, map, step, workflow


@step(name="golden.double")
async def double(number: int) -> int:
    return 2 * number


@step(name="golden.kinds")
async def kinds() -> Any:
    return {
        "tuple": (1, "a"), "set": {1, 2}, "bytes": b"\x00\xff", "big": 2**80,
        "decimal": Decimal("1.10"), "when": datetime(2026, 11, 29, 12, tzinfo=UTC),
        "nested": [{"k": (1, 2)}], 3: None,
    }  # fmt: skip


@step(name="golden.refuse", attempts=1)
async def refuse(why: str) -> None:
    raise PermissionError(why)


shut = False  # while histories are recorded of runs that are not over


@step(name="golden.gate")
async def gate() -> str:
    """Where those histories end."""
    if shut:
        await anyio.sleep_forever()
    return "through"


@workflow(name="golden.sequence")
async def sequence(number: int) -> Any:
    found: dict[object, object] = await kinds()
    for _ in range(3):
        number = await double(number)
    return {**found, "number": number}


@workflow(name="golden.parallel")
async def parallel(numbers: list[int]) -> tuple[list[int], int, int]:
    one, two = await gather(double(1), double(2))
    return await map(double, numbers, limit=2), one, two


@workflow(name="golden.caught")
async def caught(why: str) -> str:
    try:
        await refuse(why)
    except PermissionError as e:
        return f"caught {e} {await double(1)}"
    return "not refused"


@workflow(name="golden.failed")
async def failed(why: str) -> None:
    await double(1)
    await refuse(why)


@workflow(name="golden.open")
async def open_(number: int) -> Any:
    doubled = await double(number)
    return [doubled, await gate()]
