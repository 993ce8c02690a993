"""A memory store and a client on it, for asyncio and trio."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from durable.client import Client
from durable.store import Store
from durable.store.memory import Bucket, MemoryBackend
from tests.client import shop


@pytest.fixture
def bucket() -> Bucket:
    shop.ran.clear()
    shop.gates.clear()
    return Bucket()


@pytest.fixture
def store(bucket: Bucket) -> Store:
    return Store(MemoryBackend(bucket))


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client
