"""Stores of every kind, for asyncio and trio; and a world on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from durable.client import Client
from durable.store.opening import open_store
from tests.primitives.world import World


@pytest.fixture(params=["memory", "sqlite"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    memory = request.param == "memory"
    store = open_store(
        f"memory:{tmp_path.as_posix().lstrip(chr(47))}" if memory else f"sqlite:///{tmp_path}/db"
    )
    async with Client(store) as client:
        yield client
    await store.aclose()


@pytest.fixture
def world() -> World:
    return World()
