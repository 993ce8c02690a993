"""What `dispatch` and `scale` have done: steps that say when they began."""

from __future__ import annotations

import time

from durable import step, workflow

STEPS = 5


@step(name="dispatch.moment")
async def moment() -> float:
    return time.time()


@workflow(name="dispatch.begin")
async def begin() -> float:
    return await moment()


@workflow(name="dispatch.several")
async def several() -> float:
    return max([await moment() for _ in range(STEPS)])
