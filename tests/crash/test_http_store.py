"""The reader of buckets: it sees everything, as it is, whatever the server does meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from durable.store.memory import Bucket
from durable.testing.gcs import Fault, Handle, Service, serving
from durable.testing.gcs.faults import Kind
from tests.crash.http_store import HttpStore

PREFIX = "some/folder/"


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def server(bucket: Bucket) -> Iterator[Handle]:
    with serving(Service({"crash": bucket}, rate_limit=True)) as handle:
        yield handle


@pytest.fixture
def store(server: Handle) -> Iterator[HttpStore]:
    store = HttpStore(int(server.url.rsplit(":", 1)[1]), "crash", PREFIX)
    yield store
    store.close()


def put(bucket: Bucket, name: str, **body: object) -> None:
    there = bucket.read(PREFIX + name)
    data = json.dumps(body).encode()
    if there is None:
        bucket.create(PREFIX + name, data, {"nonce": "n"}, True)
    else:
        bucket.replace(PREFIX + name, there.generation, data, {"nonce": "n"}, True)


def test_it_finds_all_pages_and_only_the_folder(
    bucket: Bucket, server: Handle, store: HttpStore
) -> None:
    """However short the pages are; names are without the folder, bodies are those uploaded."""
    for number in range(7):
        put(bucket, f"runs/a%2F{number}/start", number=number)
    put(bucket, "live/default/x", number=8)
    bucket.create("elsewhere/runs/b", b"{}", {}, True)
    server.service.faults.add(Fault("short_page", size=2))

    found = store.objects("runs/")

    assert [stored.name for stored in found] == [f"runs/a%2F{n}/start" for n in range(7)]
    assert [stored.body for stored in found] == [{"number": n} for n in range(7)]
    assert len(store.objects()) == 8


def test_a_replaced_body_is_seen(bucket: Bucket, store: HttpStore) -> None:
    """Bodies are remembered by generation, not by name."""
    put(bucket, "live/default/0-run", holder="one")
    before = store.holders()
    put(bucket, "live/default/0-run", holder="two")

    assert (before, store.holders()) == ({"run": "one"}, {"run": "two"})


@pytest.mark.parametrize("kind", ["refused", "unsent", "reply_lost", "truncated"])
def test_it_asks_again(bucket: Bucket, server: Handle, store: HttpStore, kind: Kind) -> None:
    """Refused or cut off, a read is repeated until it is answered in full."""
    put(bucket, "a", number=1)
    server.service.faults.add(Fault(kind, times=3, size=40))

    assert [stored.body for stored in store.objects()] == [{"number": 1}]


def test_it_waits_for_the_end_of_an_outage(bucket: Bucket, store: HttpStore) -> None:
    """A server that starts anew is read as soon as it listens."""
    put(bucket, "a", number=1)
    store.ask("POST", "/_durable/outage", {"seconds": 0.2})

    assert [stored.body for stored in store.objects()] == [{"number": 1}]


def test_it_knows_the_time_of_the_store(server: Handle, store: HttpStore) -> None:
    """Never later than the store's clock, and less than 50 ms earlier."""
    offset = store.clock_offset()
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = server.service.now()
    after = time.clock_gettime(time.CLOCK_BOOTTIME)

    assert now - after - 0.05 < offset <= now - before + 0.001
