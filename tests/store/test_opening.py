"""From a URL to a store."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from durable.errors import UsageError
from durable.store import LOCAL_PACE, REMOTE_PACE, Backend, Written
from durable.store.memory import MemoryBackend
from durable.store.opening import Location, open_store, parse_url
from durable.store.sqlite import SqliteBackend

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("url", "location"),
    [
        (None, Location("sqlite", ".durable/durable.db")),
        ("", Location("sqlite", ".durable/durable.db")),
        ("sqlite:///", Location("sqlite", ".durable/durable.db")),
        ("sqlite:///x.db", Location("sqlite", "x.db")),
        ("sqlite:///some folder/50%.db", Location("sqlite", "some folder/50%.db")),
        ("sqlite:////var/lib/x.db", Location("sqlite", "/var/lib/x.db")),
        ("memory:", Location("memory", "")),
        ("memory:tests", Location("memory", "tests")),
        ("gs://bucket", Location("gs", "bucket")),
        ("gs://bucket/some/prefix", Location("gs", "bucket/some/prefix")),
    ],
)
def test_accepted_urls(url: str | None, location: Location) -> None:
    """Three slashes are a relative path, four an absolute one; nothing is the default file."""
    assert parse_url(url) == location


@pytest.mark.parametrize(
    "url",
    [
        "x.db",
        "/var/lib/x.db",
        "sqlite:x.db",
        "sqlite://x.db",
        "sqlite:///:memory:",
        "sqlite:///folder/",
        "memory",
        "memory://x",
        "gs:bucket",
        "gs://",
        "s3://bucket",
        "postgresql://host/db",
    ],
)
def test_other_urls_are_refused_with_the_accepted_forms(url: str) -> None:
    """The error quotes the URL and names every form that would do."""
    with pytest.raises(UsageError) as caught:
        parse_url(url)

    for part in (url, "memory:", "sqlite:///relative", "sqlite:////absolute", "gs://bucket"):
        assert part in str(caught.value)


async def test_memory_is_one_store_per_name_and_process() -> None:
    """Two openers of one name share objects; another name is another store."""
    first, second = open_store("memory:shared"), open_store("memory:shared")
    other = open_store("memory:other")

    written = await first.create("a", b"", nonce="1")

    assert isinstance(written, Written)
    assert await second.read("a") == await first.read("a")
    assert await other.read("a") is None


def test_the_default_store_is_made_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folder and file appear where the store was opened, and stay there after a chdir."""
    monkeypatch.chdir(tmp_path)
    store = open_store(None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    async def use() -> None:
        await store.create("a", b"", nonce="1")
        await store.aclose()

    anyio.run(use)

    assert (tmp_path / ".durable" / "durable.db").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_bucket_is_opened_without_asking_it() -> None:
    """A gs:// URL names its bucket and folder; nothing is sent before the first call."""
    from durable.store.gcs import GcsBackend  # not before: it imports aiohttp

    backend = open_store("gs://no-such-bucket/prefix").backend

    assert isinstance(backend, GcsBackend)
    assert str(backend.place) == "gs://no-such-bucket/prefix"


async def test_what_a_store_tells_the_runtime(tmp_path: Path) -> None:
    """Local stores are polled often; only SQLite's time ends with the boot of its machine."""
    memory = open_store("memory:")
    sqlite = open_store(f"sqlite:///{tmp_path}/x.db")

    assert isinstance(memory.backend, MemoryBackend)
    assert isinstance(sqlite.backend, SqliteBackend)
    assert memory.pace == sqlite.pace == LOCAL_PACE
    assert Backend.pace == REMOTE_PACE
    assert (memory.backend.boot, memory.backend.lock_folder) == ("", None)
    assert sqlite.backend.boot != ""
    assert sqlite.backend.lock_folder == f"{tmp_path}/x.db.locks"
    assert not (tmp_path / "x.db.locks").exists()
    await sqlite.aclose()
