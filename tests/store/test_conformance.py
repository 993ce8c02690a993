"""The two stores that ship keep what every store promises."""

from __future__ import annotations

import pytest

from durable.store import Backend
from durable.store.opening import open_store
from durable.store.sqlite import SqliteBackend
from durable.testing.conformance import StoreConformance


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=pytest.mark.requires("trio"))])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestMemory(StoreConformance):
    def open(self, place: str) -> Backend:
        return open_store(f"memory:{place.lstrip('/')}").backend


class TestSqlite(StoreConformance):
    def open(self, place: str) -> Backend:
        return SqliteBackend(f"{place}/objects.db")

    def url(self, place: str) -> str:
        return f"sqlite:///{place}/objects.db"
