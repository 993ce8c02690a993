"""A server for the tests of the store, and stores on it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from durable.store import Store
from durable.store.gcs import GcsBackend, Place
from durable.store.memory import Bucket
from durable.testing.gcs import Handle, Service, serving
from tests.gcs_store.certificates import Certificates, make

BUCKET = "some-bucket"


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=pytest.mark.requires("trio"))])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def _server() -> Iterator[Handle]:
    with serving(Service({BUCKET: Bucket()})) as handle:
        yield handle


@pytest.fixture
def server(_server: Handle) -> Handle:
    """The server without faults and counts of other tests; its objects stay."""
    _server.service.faults.clear()
    _server.service.calls.clear()
    return _server


_folders = itertools.count()


@pytest.fixture
def place(server: Handle) -> Place:
    """A folder of the test's own."""
    return Place(BUCKET, f"folder-{next(_folders)}/", "", server.url, anonymous=True)


@pytest.fixture
async def backend(place: Place, anyio_backend: str) -> AsyncIterator[GcsBackend]:
    backend = GcsBackend(place)
    yield backend
    await backend.aclose()


@pytest.fixture
def store(backend: GcsBackend) -> Store:
    return Store(backend)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made for this run of the tests."""
    return make(tmp_path_factory.mktemp("certificates"))
