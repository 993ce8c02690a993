"""A machine whose clocks are the event loop's and whose chance is a seed.

On trio with a mock clock hours of leases and timers then run in milliseconds, and a seed repeats
what it did.
"""

from __future__ import annotations

import random  # noqa: TID251  # a seed repeats it, which is the point

import anyio

from durable.store import Store
from durable.store.memory import Bucket, MemoryBackend
from durable.system import System

EPOCH = 1_700_000_000.0  # 2023-11-14T22:13:20Z, the wall time at the loop's zero


def virtual_system(seed: int = 0) -> System:
    """Clocks that follow `anyio.current_time()`, tokens and jitter from `seed`."""
    chance = random.Random(seed)  # noqa: S311  # not for secrets
    return System(
        boot=anyio.current_time,
        wall=lambda: EPOCH + anyio.current_time(),
        token=lambda: f"{chance.getrandbits(96):024x}",
        uniform=chance.uniform,
    )


def virtual_bucket() -> Bucket:
    """An empty bucket whose time is the event loop's."""
    return Bucket(now=lambda: EPOCH + anyio.current_time())


def virtual_store(bucket: Bucket, *, seed: int = 0, patience: float | None = 30.0) -> Store:
    """A store of its own over a shared bucket, as another process would have."""
    return Store(MemoryBackend(bucket), system=virtual_system(seed), patience=patience)
