"""Which store a test runs on: the bucket in memory, as it is or over the wire.

Over the wire each call becomes the request that the gs:// store sends, goes as bytes to the
strict server's service, and its answer is read as the gs:// store reads it. No socket is opened
and no time passes, so virtual clocks and faults work as they do without.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Literal, TypeVar, cast
from weakref import WeakKeyDictionary

from durable.store import EVERYTHING, Page, Stored, Within, Written
from durable.store.gcs import GcsBackend, Place
from durable.store.memory import PAGE_SIZE, Bucket
from durable.system import System
from durable.testing.gcs import Direct, Service

Kind = Literal["memory", "wire"]
NAME = "some-bucket"

T = TypeVar("T")


class OverTheWire:
    """The bucket for a `MemoryBackend`, which brings the faults; its verbs go over the wire."""

    def __init__(self, table: Bucket, service: Service) -> None:
        self._table = table
        system = System(boot=table.now, wall=table.now)
        place = Place(NAME, endpoint="http://nowhere", anonymous=True)
        self._gcs = GcsBackend(place, system=system, transport=Direct(service, system))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)  # counts, clock, and what is under way

    def create(self, name: str, body: bytes, meta: dict[str, str], inline: bool) -> Written | None:
        return _at_once(self._gcs.create(name, body, meta, inline))

    def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        return _at_once(self._gcs.replace(name, generation, body, meta, inline))

    def read(self, name: str) -> Stored | None:
        return _at_once(self._gcs.read(name))

    def list(
        self,
        prefix: str,
        token: str | None,
        limit: int = PAGE_SIZE,
        within: Within = EVERYTHING,
    ) -> Page:
        if limit != PAGE_SIZE:  # a fault; the gs:// store always asks for full pages
            return self._table.list(prefix, token, limit, within)
        return _at_once(self._gcs.list(prefix, token, within))

    def delete(self, name: str, generation: int) -> bool:
        return _at_once(self._gcs.delete(name, generation))

    def copy(self, source: str, generation: int, name: str) -> Written | None:
        return _at_once(self._gcs.copy(source, generation, name))


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns: without sockets it never waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        return cast("T", ended.value)
    raise AssertionError("a call that uses no socket waited")


class Chosen:
    """What the test at hand runs on."""

    kind: Kind = "memory"


_services: WeakKeyDictionary[Bucket, Service] = WeakKeyDictionary()


def chosen(table: Bucket) -> Bucket:
    """The bucket as a store of the test at hand is to reach it."""
    if Chosen.kind == "memory":
        return table
    service = _services.get(table)
    if service is None:
        service = _services[table] = Service({NAME: table}, now=table.now)
    return cast("Bucket", OverTheWire(table, service))
