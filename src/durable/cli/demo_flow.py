"""The workflow of `durable demo`: short steps, one after the other."""

from __future__ import annotations

import anyio

from durable import step, workflow

STEP_SECONDS = 0.4


@step
async def pack(item: int) -> str:
    """A stand-in for work that must not be lost."""
    await anyio.sleep(STEP_SECONDS)
    return f"parcel {item}"


@workflow
async def packing(items: int) -> list[str]:
    """Pack one item after the other."""
    return [await pack(item) for item in range(1, items + 1)]
