"""Google Cloud Storage keeps what every store promises, through HTTP.

On the strict server, and on the bucket that GCS_TEST_BUCKET names.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from durable.errors import StoreUnavailable
from durable.store import Backend, Store, Written
from durable.store.gcs import GcsBackend, Place
from durable.store.memory import Bucket
from durable.testing.conformance import StoreConformance
from durable.testing.gcs import Service, serving
from tests.commands import environment
from tests.gcs_store.conftest import BUCKET

ROOT = Path(__file__).parents[2]
# One object takes one change a second there, and many tests change one many times.
REAL = [pytest.mark.requires("gcs-bucket"), pytest.mark.timeout(300)]
PAUSE = 0.5  # seconds, on average, before an object that has just changed is changed again

T = TypeVar("T")


class PatientBackend(GcsBackend):
    """Asks again when a bucket says that an object changes too often: it decided nothing."""

    async def create(
        self, name: str, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        ask = super().create
        return await self._let_in(lambda: ask(name, body, meta, inline))

    async def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        ask = super().replace
        return await self._let_in(lambda: ask(name, generation, body, meta, inline))

    async def delete(self, name: str, generation: int) -> bool:
        ask = super().delete
        return await self._let_in(lambda: ask(name, generation))

    async def _let_in(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except StoreUnavailable as e:
                if " with 429" not in e.message:
                    raise
            await anyio.sleep(self._system.uniform(0, 2 * PAUSE))  # real: so is the bucket


class TestGcs(StoreConformance):
    place: Place
    kind: type[GcsBackend]

    @pytest.fixture(
        scope="class",
        autouse=True,
        params=["durable", pytest.param("real", marks=REAL)],
    )
    @staticmethod
    def _served(request: pytest.FixtureRequest) -> Iterator[None]:
        """Where the bucket is: attributes of the class, which `open` has no other way to."""
        if request.param == "real":
            folder = f"test-{uuid.uuid4().hex[:8]}"  # short: a name may have 1,024 bytes in all
            request.cls.place = Place.parse(f"{os.environ['GCS_TEST_BUCKET']}/{folder}")
            request.cls.kind, request.cls.rounds = PatientBackend, 3
            yield
            anyio.run(empty, request.cls.place)
            return
        with serving(Service({BUCKET: Bucket()})) as server:
            request.cls.place = Place(BUCKET, "", "", server.url, anonymous=True)
            request.cls.kind, request.cls.rounds = GcsBackend, 20
            yield

    def open(self, place: str) -> Backend:
        folder = hashlib.sha256(place.encode()).hexdigest()[:8]
        return self.kind(self.place._replace(prefix=f"{self.place.prefix}{folder}/"))


async def empty(place: Place) -> None:
    """Delete all that is there."""
    store = Store(PatientBackend(place))
    async for stored in store.list(""):
        await store.delete(stored.name, stored.generation)
    await store.aclose()


def test_the_same_suite_runs_on_a_real_bucket() -> None:
    """With GCS_TEST_BUCKET set the suite uses that bucket, here one that limits mutations."""
    table = Bucket()
    with serving(Service({"mine": table}, rate_limit=True)) as server:
        done = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__,
                "-k", "real and asyncio and replace_changes",
            ],
            cwd=ROOT,
            env=environment() | {"GCS_TEST_BUCKET": "mine", "STORAGE_EMULATOR_HOST": server.url},
            capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stdout
    assert server.service.calls.billed()["A"] > 0
    assert not list(table.names.since(""))  # it left nothing behind
