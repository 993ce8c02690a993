"""Several calls at once, each with its own outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from durable.errors import StoreError

T = TypeVar("T")


async def together(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T | StoreError]:
    """What each call returned or which error of the store it ended with, in their order."""
    outcomes: dict[int, T | StoreError] = {}

    async def run(number: int, call: Callable[[], Awaitable[T]]) -> None:
        try:
            outcomes[number] = await call()
        except StoreError as e:
            outcomes[number] = e

    async with anyio.create_task_group() as tasks:
        for number, call in enumerate(calls):
            tasks.start_soon(run, number, call)
    return [outcomes[number] for number in range(len(calls))]
