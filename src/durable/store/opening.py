"""From a store's URL to the store: `memory:`, `sqlite:///path`, `gs://bucket/prefix`."""

from __future__ import annotations

import threading
from typing import Literal, NamedTuple

from durable.errors import UsageError
from durable.store import Backend, Store
from durable.store.memory import Bucket, MemoryBackend
from durable.system import System

DEFAULT_URL = "sqlite:///.durable/durable.db"
_FORMS = (
    "Write memory: or memory:name (this process only), sqlite:///relative/path.db, "
    "sqlite:////absolute/path.db or gs://bucket/prefix."
)

_buckets: dict[str, Bucket] = {}
_buckets_lock = threading.Lock()


class Location(NamedTuple):
    """What a URL names: a bucket of this process, a database file, or a place at Google."""

    kind: Literal["memory", "sqlite", "gs"]
    place: str


def parse_url(url: str | None) -> Location:
    """Where the store is; None is the default.

    Raises:
        UsageError: it is none of the accepted forms.
    """
    url = url or DEFAULT_URL
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "memory" and not rest.startswith("/"):
        return Location("memory", rest)
    if scheme == "sqlite" and rest.startswith("///"):
        path = rest.removeprefix("///") or DEFAULT_URL.removeprefix("sqlite:///")
        if path == ":memory:" or path.endswith("/"):
            raise UsageError(f"the store URL {url!r} names no database file", hint=_FORMS)
        return Location("sqlite", path)
    if scheme == "gs" and rest.startswith("//") and rest.strip("/"):
        return Location("gs", rest.removeprefix("//"))
    raise UsageError(f"the store URL {url!r} is not understood", hint=_FORMS)


def open_store(
    url: str | None,
    *,
    system: System | None = None,
    patience: float | None = 30.0,
    create: bool = True,
) -> Store:
    """Open the store of that URL, by default the database `.durable/durable.db`.

    `memory:` and `memory:name` are one store per process and name.

    Args:
        patience: seconds for which a call that the store does not answer is repeated; None is
            for ever.
        create: make the database file if there is none.

    Raises:
        UsageError: the URL is none of the accepted forms.
        StoreRefused: the store cannot be used as it is, or is not there and is not to be made.
    """
    system = system or System()
    backend = _backend(parse_url(url), system, create=create)
    return Store(backend, system=system, patience=patience)


def _backend(location: Location, system: System, *, create: bool) -> Backend:
    if location.kind == "memory":
        with _buckets_lock:
            return MemoryBackend(_buckets.setdefault(location.place, Bucket()))
    if location.kind == "sqlite":
        from durable.store.sqlite import SqliteBackend

        return SqliteBackend(location.place, system=system, create=create)
    from durable.store.gcs import GcsBackend, Place

    return GcsBackend(Place.parse(location.place), system=system)
