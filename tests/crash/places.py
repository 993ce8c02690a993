"""Where the runs of a crash run are kept: one file, or a bucket behind a server that goes wrong."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import anyio

from tests.commands import ROOT, environment
from tests.crash.evidence import DATABASE, LOGS, OBJECTS
from tests.crash.http_store import HttpStore
from tests.crash.store import Reader, StoreFile
from tests.crash.wire import WireFaults

BUCKET = "crash"
PREFIX = "some/folder/"


class Place(Protocol):
    """A store, and what can be done to it.

    Attributes:
        url: as durable takes it.
        environment: what processes need in theirs to reach it.
    """

    url: str
    environment: dict[str, str]

    def open(self) -> Reader:
        """Look at it without durable."""

    async def go_wrong(self) -> None:
        """Faults of the store itself, one after the other, until this is cancelled."""

    def calm(self) -> dict[str, int]:
        """No more faults. Returns how often each kind has struck."""

    def close(self) -> None:
        """Keep what is needed as evidence, and end everything."""


class FilePlace(Place):
    """A SQLite file, which never fails by itself."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / DATABASE}"
        self.environment = {}
        self._path = folder / DATABASE

    def open(self) -> Reader:
        return StoreFile(self._path)

    async def go_wrong(self) -> None:
        await anyio.sleep_forever()

    def calm(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        pass  # the file is the evidence


class HttpPlace(Place):
    """A bucket on the strict server, in a process of its own, one mutation per second and object.

    The server's restarts are outages: no listener, every connection closed, the objects kept, as
    behind Google's front ends. Its process goes on, since the bucket is nowhere but there.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        (folder / LOGS).mkdir(exist_ok=True)
        command = [sys.executable, "-m", "durable.testing.gcs", "--port", "0", "--rate-limit"]
        with (folder / LOGS / "server.err").open("wb") as errors:
            self._server = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment() | {"PYTHONPATH": str(ROOT / "src")},
            )
        assert self._server.stdout is not None
        address = self._server.stdout.readline().split()[-1]
        self._reader = HttpStore(int(address.rsplit(":", 1)[1]), BUCKET, PREFIX)
        self._reader.ask("POST", "/storage/v1/b?project=crash", {"name": BUCKET})
        self._faults = WireFaults(self._reader.ask, random.Random(seed))
        self.url = f"gs://{BUCKET}/{PREFIX}"
        self.environment = {"STORAGE_EMULATOR_HOST": address}

    def open(self) -> Reader:
        return self._reader

    async def go_wrong(self) -> None:
        await self._faults.strike()

    def calm(self) -> dict[str, int]:
        return self._faults.calm()

    def close(self) -> None:
        try:
            self._faults.end()
            found = [asdict(stored) for stored in self._reader.objects()]
            (self._folder / OBJECTS).write_text(json.dumps(found))
        finally:
            self._reader.close()
            self._server.terminate()
            self._server.communicate()


def place_of(kind: str, folder: Path, seed: int) -> Place:
    """The place of that kind: `sqlite` or `http`."""
    return HttpPlace(folder, seed) if kind == "http" else FilePlace(folder)
