"""What is carried in metadata, what is not, and what is too large."""

from __future__ import annotations

import anyio
import pytest

from durable.errors import StoreRefused
from durable.store.gcs import GcsBackend, Place
from durable.system import System
from durable.testing.gcs import Handle
from tests.gcs_store.conftest import BUCKET

pytestmark = pytest.mark.anyio

SMALL = [
    b'{"value":"gr\xc3\xb6\xc3\x9fe \xf0\x9f\x98\x80"}',
    b"",
    b"=",
    b" ",
    b" {}",
    b"{}\n",
    b"a\r\nx-goog-meta-b: c",
    b"\x00\xff",
    "\u2028".encode(),
    b"\xc3\xb6" * 2048,
    b'"' * 4096,
    b"\xff" * 4096,
]


@pytest.mark.parametrize("body", SMALL, ids=lambda body: repr(body[:12]))
async def test_small_bodies_come_with_the_one_request(
    backend: GcsBackend, server: Handle, body: bytes
) -> None:
    """Text and bytes alike are read back and listed as they were, in one request each."""
    await backend.create("a", body, {"nonce": "n"}, True)
    server.service.calls.clear()

    stored = await backend.read("a")
    page = await backend.list("", None)

    assert stored is not None
    assert (stored.body, stored.meta) == (body, {"nonce": "n"})
    assert page.items == [stored]
    assert server.service.calls.by_verb() == {"get": 1, "list": 1}


async def test_other_bodies_take_a_second_request(backend: GcsBackend, server: Handle) -> None:
    """What is too large for metadata, or not meant for lists, is fetched by its generation."""
    await backend.create("large", b"x" * 4097, {}, True)
    await backend.create("hidden", b"x", {}, False)
    server.service.calls.clear()

    bodies = [await backend.read("large"), await backend.read("hidden")]

    assert [stored and stored.body for stored in bodies] == [b"x" * 4097, b"x"]
    assert server.service.calls.by_verb() == {"get": 2, "media": 2}


async def test_each_verb_is_one_request(backend: GcsBackend, server: Handle) -> None:
    """Create and replace cost an insert each, a delete a delete, lost races the same."""
    first = await backend.create("a", b"1", {}, True)
    assert first is not None
    await backend.create("a", b"1", {}, True)
    await backend.replace("a", first.generation, b"2", {}, True)
    await backend.replace("a", first.generation, b"2", {}, True)
    await backend.delete("a", first.generation)

    assert server.service.calls.by_verb() == {"insert": 4, "delete": 1}
    assert server.service.calls.billed()["A"] == 2


@pytest.mark.parametrize(("label", "fits"), [("ö" * 2040 + "x", True), ("ö" * 2041, False)])
async def test_a_body_that_does_not_fit_beside_the_metadata_is_left_out(
    backend: GcsBackend, label: str, fits: bool
) -> None:
    """All keys and values together have at most 8,192 bytes; the object is whole either way."""
    meta = {"nonce": "n", "label": label}
    used = sum(len(key) + len(value.encode()) for key, value in meta.items())
    assert (used + len("body") + 4096 <= 8192) == fits

    await backend.create("a", b"x" * 4096, meta, True)
    page = await backend.list("", None)
    stored = await backend.read("a")

    assert [item.body is not None for item in page.items] == [fits]
    assert stored is not None
    assert (stored.meta, stored.body) == (meta, b"x" * 4096)


async def test_metadata_over_the_limit_is_refused_here(backend: GcsBackend, server: Handle) -> None:
    """Nothing is sent, and the message has both sizes."""
    with pytest.raises(StoreRefused, match=r"8,193 bytes.*8,192"):
        await backend.create("a", b"", {"k": "x" * 8192}, True)

    assert server.service.calls.log == []


def test_the_largest_body_is_one_post(place: Place, server: Handle) -> None:
    """64 MiB are written and read back; the event loop is not asked to swallow them whole."""
    body = bytes(range(256)) * (64 * 4096)
    assert len(body) == 64 * 1024 * 1024

    async def write_and_read() -> bytes | None:
        backend = GcsBackend(place)
        await backend.create("a", body, {}, True)
        stored = await backend.read("a")
        await backend.aclose()
        return stored and stored.body

    assert anyio.run(write_and_read) == body
    assert server.service.calls.by_verb() == {"insert": 1, "get": 1, "media": 1}


async def test_a_larger_body_is_refused_before_it_is_sent(
    backend: GcsBackend, server: Handle
) -> None:
    """The message has the size, the limit and what to use instead."""
    with pytest.raises(StoreRefused, match=r"67,108,865.*67,108,864") as caught:
        await backend.create("a", bytes(64 * 1024 * 1024 + 1), {}, True)

    assert "artifacts" in str(caught.value)
    assert server.service.calls.log == []


async def test_no_body_ends_its_own_part(backend: GcsBackend) -> None:
    """A body that imitates the end of a part and of an upload is kept as it is."""
    for number, mark in enumerate(["--", "--boundary", "--" + "x" * 32]):
        body = f"1\r\n{mark}--\r\n{mark}\r\n\r\n2".encode()
        await backend.create(str(number), body, {}, False)
        stored = await backend.read(str(number))

        assert stored is not None
        assert stored.body == body


async def test_others_objects_are_read_and_listed(backend: GcsBackend, server: Handle) -> None:
    """What other tools put there has a body to be read; the folder itself is no object."""
    prefix = backend.place.prefix
    table = server.service.bucket(BUCKET).table
    table.create(prefix, b"", {}, False)
    table.create(f"{prefix}note", b"by hand", {"body64": "spoilt!"}, False)

    page = await backend.list("", None)
    stored = await backend.read("note")

    assert [(item.name, item.body) for item in page.items] == [("note", None)]
    assert stored is not None
    assert (stored.body, stored.meta) == (b"by hand", {})


async def test_a_prefix_hides_what_is_beside_it(place: Place) -> None:
    """Stores under `a` and `a-b` of one bucket do not see each other."""
    one = GcsBackend(place._replace(prefix=place.prefix + "a/"))
    two = GcsBackend(place._replace(prefix=place.prefix + "a-b/"))
    await one.create("x", b"1", {}, True)
    await two.create("x", b"2", {}, True)

    pages = [await store.list("", None) for store in (one, two)]

    assert [[(item.name, item.body) for item in page.items] for page in pages] == [
        [("x", b"1")],
        [("x", b"2")],
    ]
    for store in (one, two):
        await store.aclose()


async def test_a_large_object_replaced_between_two_requests_is_read_anew(
    backend: GcsBackend, server: Handle
) -> None:
    """Metadata of one generation never come with the body of another."""
    first = await backend.create("a", b"1" * 5000, {"n": "1"}, True)
    assert first is not None
    table = server.service.bucket(BUCKET).table
    replaced: list[object] = []

    def boot() -> float:
        """Asked when an answer has come, it replaces the object behind the first one."""
        if not replaced:
            name = f"{backend.place.prefix}a"
            replaced.append(table.replace(name, first.generation, b"2" * 5000, {"n": "2"}, False))
        return 0.0

    watching = GcsBackend(backend.place, system=System(boot=boot))
    stored = await watching.read("a")
    await watching.aclose()

    assert replaced
    assert stored is not None
    assert (stored.meta, stored.body) == ({"n": "2"}, b"2" * 5000)
    assert server.service.calls.by_verb() == {"insert": 1, "get": 2, "media": 2}
