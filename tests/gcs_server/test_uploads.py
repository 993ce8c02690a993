"""Conformance: every condition on every kind of upload, decided when the object is made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gcs_server.targets import KINDS, Kind, Target, generation_of

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_create_only(target: Target, kind: Kind) -> None:
    """With ifGenerationMatch=0 the first upload of a name wins and the second changes nothing."""
    blob = target.blob()
    first = target.upload(kind, blob, b"first", if_generation_match=0)

    with target.refuses(412):
        target.upload(kind, target.blob(blob.name), b"second", if_generation_match=0)

    assert target.read(blob.name) == b"first"
    assert generation_of(target.bucket.get_blob(blob.name)) == first


@every_kind
def test_compare_and_swap(target: Target, kind: Kind) -> None:
    """An upload replaces the generation it names and no other."""
    blob = target.create()
    old = generation_of(blob)
    new = target.upload(kind, target.blob(blob.name), b"second", if_generation_match=old)

    assert new != old
    with target.refuses(412):
        target.upload(kind, target.blob(blob.name), b"third", if_generation_match=old)
    assert target.read(blob.name) == b"second"


@every_kind
def test_swap_needs_an_object(target: Target, kind: Kind) -> None:
    """A generation that is gone, or never was, cannot be replaced."""
    blob = target.create()
    old = generation_of(blob)
    blob.delete(if_generation_match=old)

    with target.refuses(412):
        target.upload(kind, target.blob(blob.name), b"second", if_generation_match=old)
    assert target.bucket.get_blob(blob.name) is None


@every_kind
def test_upload_unless_generation(target: Target, kind: Kind) -> None:
    """A NotMatch refuses with 304 the generation named, and where there is nothing."""
    blob = target.create()
    same = generation_of(blob)
    again = target.blob(blob.name)

    with target.refuses(304):
        target.upload(kind, again, b"second", if_generation_not_match=same)
    with target.refuses(304):
        target.upload(kind, target.blob(), b"second", if_generation_not_match=0)
    assert target.read(blob.name) == b"first"
    target.upload(kind, again, b"second", if_generation_not_match=0)
    assert target.read(blob.name) == b"second"


@every_kind
def test_upload_by_metageneration(target: Target, kind: Kind) -> None:
    """Both conditions on the metageneration are decided too; a new generation starts at 1."""
    blob = target.create()
    blob.metadata = {"a": "1"}
    blob.patch()
    again = target.blob(blob.name)

    with target.refuses(412):
        target.upload(kind, again, b"second", if_metageneration_match=1)
    with target.refuses(304):
        target.upload(kind, again, b"second", if_metageneration_not_match=2)
    assert target.read(blob.name) == b"first"
    target.upload(kind, again, b"second", if_metageneration_match=2)
    assert target.bucket.get_blob(blob.name).metageneration == 1


@every_kind
def test_unconditional_overwrite(target: Target, kind: Kind) -> None:
    """Without a condition the last upload stands, as a generation of its own."""
    blob = target.create()
    new = target.upload(kind, target.blob(blob.name), b"second")

    assert new != generation_of(blob)
    assert target.read(blob.name) == b"second"


@every_kind
def test_an_empty_object(target: Target, kind: Kind) -> None:
    """An object may have no bytes at all."""
    blob = target.blob()
    target.upload(kind, blob, b"", if_generation_match=0)

    assert target.read(blob.name) == b""
    assert target.bucket.get_blob(blob.name).size == 0


def test_what_an_upload_answers(target: Target) -> None:
    """The answer is the resource: generation, metageneration, size, hashes, times, metadata."""
    blob = target.create(data=b"hello", nonce="n", emoji="é")
    answer = target.send("GET", target.object_path(blob.name))

    assert answer["kind"] == "storage#object"
    assert answer["id"] == f"{target.bucket.name}/{blob.name}/{blob.generation}"
    assert answer["metageneration"] == "1"
    assert answer["size"] == "5"
    assert answer["md5Hash"] == "XUFAKrxLKna5cZ2REBfFkg=="
    assert answer["crc32c"] == "mnG7TA=="
    assert answer["metadata"] == {"nonce": "n", "emoji": "é"}
    assert answer["contentType"] == "text/plain"
    assert answer["timeCreated"] == answer["updated"]


@pytest.mark.parametrize("lie", [{"md5Hash": "XUFAKrxLKna5cZ2REBfFkA=="}, {"crc32c": "AAAAAA=="}])
def test_a_wrong_hash_is_refused(target: Target, lie: dict[str, str]) -> None:
    """Content that is not what its sender says it is becomes no object."""
    name = target.name()
    with target.refuses_other(400):
        multipart(target, {"name": name, **lie}, b"hello", ifGenerationMatch="0")
    assert target.bucket.get_blob(name) is None


def test_lines_of_a_multipart_body_may_end_in_lf(target: Target) -> None:
    """Some clients separate the parts with LF alone."""
    name = target.name()
    multipart(target, {"name": name}, b"a\r\nb\n", line="\n")

    assert target.read(name) == b"a\r\nb\n"


def test_a_resumable_upload_is_decided_at_its_end(target: Target) -> None:
    """Whoever makes the object between start and end of a create-only upload wins."""
    blob = target.blob()
    session = start(target, blob.name, ifGenerationMatch="0")
    target.create(blob.name)

    answer = put(target, session, b"late", "bytes 0-3/4")

    assert answer.status_code == 412
    assert target.read(blob.name) == b"first"


def test_a_resumable_upload_in_pieces(target: Target) -> None:
    """Each piece is acknowledged with what has arrived; the last makes the object, once."""
    piece, name = b"x" * 256 * 1024, target.name()
    session = start(target, name, ifGenerationMatch="0")

    assert put(target, session, b"", "bytes */*").status_code == 308
    answer = put(target, session, piece, f"bytes 0-{len(piece) - 1}/*")
    assert (answer.status_code, answer.headers["Range"]) == (308, f"bytes=0-{len(piece) - 1}")
    assert target.bucket.get_blob(name) is None
    last = f"bytes {len(piece)}-{len(piece) + 2}/{len(piece) + 3}"
    done = put(target, session, b"end", last)

    assert done.status_code == 200
    assert target.read(name) == piece + b"end"
    again = put(target, session, b"", f"bytes */{len(piece) + 3}")
    assert (again.status_code, again.json()["generation"]) == (200, done.json()["generation"])


def multipart(
    target: Target, resource: dict[str, Any], data: bytes, *, line: str = "\r\n", **params: str
) -> dict[str, Any]:
    """A multipart upload of our own making."""
    parts = [
        "--edge",
        "Content-Type: application/json",
        "",
        json.dumps(resource),
        "--edge",
        "Content-Type: application/octet-stream",
        "",
        "",
    ]
    body = line.join(parts).encode() + data + f"{line}--edge--{line}".encode()
    return target.send(
        "POST",
        "/upload" + target.path + "/o",
        params={"uploadType": "multipart", **params},
        headers={"Content-Type": "multipart/related; boundary=edge"},
        data=body,
    )


def start(target: Target, name: str, **params: str) -> str:
    """The session URL of a new resumable upload."""
    params = {"uploadType": "resumable", "name": name, **params}
    answer = target.raw("POST", "/upload" + target.path + "/o", params=params)
    assert answer.status_code == 200, answer.content
    return str(answer.headers["Location"])


def put(target: Target, session: str, data: bytes, content_range: str) -> Any:
    return target.client._http.request(
        "PUT", session, data=data, headers={"Content-Range": content_range}, timeout=30
    )
