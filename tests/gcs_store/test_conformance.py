"""Google Cloud Storage keeps what every store promises, through HTTP."""

from __future__ import annotations

import hashlib

import pytest

from durable.store import Backend, Stored
from durable.store.gcs import GcsBackend, Place
from durable.testing.conformance import StoreConformance
from durable.testing.gcs import Handle
from tests.gcs_store.conftest import BUCKET


class TestGcs(StoreConformance):
    rounds = 20

    @pytest.fixture(autouse=True)
    def _served(self, server: Handle) -> None:
        self.server = server

    def open(self, place: str) -> Backend:
        folder = hashlib.sha256(place.encode()).hexdigest()[:8]
        return GcsBackend(Place(BUCKET, f"{folder}/", "", self.server.url, anonymous=True))

    async def test_replace_changes_the_named_generation(self, backend: Backend) -> None:
        """As everywhere, but the creation time is that of the generation: GCS keeps no other."""
        first = await backend.create("a", b"1", {"x": "1", "y": "1"}, True)
        assert first is not None

        second = await backend.replace("a", first.generation, b"2", {"x": "2"}, True)

        assert second is not None
        assert second.generation != first.generation
        assert second.updated >= first.updated
        assert await backend.read("a") == Stored(
            "a", second.generation, second.updated, second.updated, {"x": "2"}, b"2"
        )
