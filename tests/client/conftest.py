"""Stores and clients on them, for asyncio and trio.

A test that looks into the bucket runs on the one in memory, as it is and over the wire. All
others run on every store that ships, on a bucket through HTTP.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable.client import Client
from durable.store import LOCAL_PACE, Backend, Store
from durable.store.gcs import GcsBackend, Place
from durable.store.memory import Bucket, MemoryBackend
from durable.store.sqlite import SqliteBackend
from durable.testing.gcs import Service, serving
from tests.client import shop
from tests.stores import NAME, Chosen, chosen


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" not in metafunc.fixturenames:
        return
    looks_into_it = "bucket" in inspect.signature(metafunc.function).parameters
    kinds = ["memory", "wire"] if looks_into_it else ["memory", "sqlite", "http"]
    metafunc.fixturenames.append("kind")
    metafunc.parametrize("kind", kinds, indirect=True)


@pytest.fixture
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kind of store that the test runs on."""
    if request.param == "wire":
        monkeypatch.setattr(Chosen, "kind", "wire")
    return str(request.param)


@pytest.fixture
def bucket() -> Bucket:
    shop.ran.clear()
    shop.gates.clear()
    return Bucket()


@pytest.fixture
async def store(kind: str, bucket: Bucket, tmp_path: Path) -> AsyncIterator[Store]:
    with _backend(kind, bucket, tmp_path) as backend:
        yield Store(backend)
        await backend.aclose()


@contextmanager
def _backend(kind: str, bucket: Bucket, folder: Path) -> Iterator[Backend]:
    if kind == "sqlite":
        yield SqliteBackend(str(folder / "objects.db"))
    elif kind == "http":
        with serving(Service({NAME: bucket})) as server:
            backend = GcsBackend(Place(NAME, endpoint=server.url, anonymous=True))
            backend.pace = LOCAL_PACE  # the server is near, and its calls cost nothing
            yield backend
    else:
        yield MemoryBackend(chosen(bucket))


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client
