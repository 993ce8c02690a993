"""A process that dies at one of its store calls."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Literal

from durable.errors import StoreUnavailable
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend
from durable.system import System

Mode = Literal["unsent", "reply_lost"]  # before the call is applied, or after
MODES: tuple[Mode, ...] = ("unsent", "reply_lost")


async def dies(
    bucket: Bucket,
    mode: Mode,
    at: int,
    work: Callable[[Store], Awaitable[object]],
    *,
    system: System | None = None,
) -> bool:
    """Do the work up to that call, counted from 0; False: it made fewer and was done."""
    calls = itertools.count()

    def faults(_call: Call) -> Fault | None:
        return Fault(mode) if next(calls) == at else None

    try:
        await work(Store(MemoryBackend(bucket, faults=faults), patience=0, system=system))
    except StoreUnavailable:
        return True
    return False
