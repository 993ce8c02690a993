"""Two things of the runtime's own at once; users' branches are `branches`."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import anyio

A = TypeVar("A")
B = TypeVar("B")


async def both(one: Awaitable[A], other: Awaitable[B]) -> tuple[A, B]:
    """Await the first here and the second beside it, in the one task that this takes.

    Raises what one of them raises, and cancels the other.
    """
    found: list[B] = []
    failed: list[Exception] = []

    async def beside() -> None:
        try:
            found.append(await other)
        except Exception as e:  # noqa: BLE001  # raised below, not in a group
            failed.append(e)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside)
        try:
            first = await one
        except Exception as e:  # noqa: BLE001  # as above
            failed.append(e)
            tasks.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return first, found[0]
