"""Uploads as bytes and resources as objects. Pure.

Lists and reads of a resource return an object's custom metadata but not its body. So a small body
is carried there, too: as text under `body` where it is printable UTF-8, as our JSON records are,
else in base64 under `body64`. What does not fit into GCS's 8 KiB is left to the body alone.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from datetime import datetime
from typing import NamedTuple

import msgspec

from durable.errors import StoreRefused
from durable.protocol import keeping
from durable.protocol.keeping import Kept
from durable.store import INLINE_BYTES_MAX, Page, Stored, Written

BODY_BYTES_MAX = 64 * 1024 * 1024  # of one POST; beyond that GCS wants a resumable upload
META_BYTES_MAX = 8 * 1024  # of all keys and values of the custom metadata, GCS's limit

_BODY = "body"
_BODY64 = "body64"
_EMPTY = "="  # the base64 of nothing, as a value that is not empty


class Upload(NamedTuple):
    """The body of a POST, and its content type."""

    data: bytes
    content_type: str


class _Insert(msgspec.Struct):
    name: str
    metadata: dict[str, str]
    cacheControl: str = "no-store"  # noqa: N815  # GCS's word; else a public bucket is cached


class _Resource(msgspec.Struct):
    """An object as GCS describes it; numbers come as strings."""

    generation: int
    updated: datetime
    timeCreated: datetime | None = None  # noqa: N815  # GCS's word
    name: str = ""
    metadata: dict[str, str] = {}  # a Struct copies it
    size: int = 0


class _Retention(msgspec.Struct, frozen=True):
    retentionPeriod: int = 0  # noqa: N815  # GCS's word; in seconds
    isLocked: bool = False  # noqa: N815  # GCS's word


class _Bucket(msgspec.Struct):
    retentionPolicy: _Retention = _Retention()  # noqa: N815  # GCS's word
    defaultEventBasedHold: bool = False  # noqa: N815  # GCS's word


class _Items(msgspec.Struct):
    items: list[_Resource] = []  # a Struct copies it; GCS leaves out what is empty
    nextPageToken: str | None = None  # noqa: N815  # GCS's word


class _Rewrite(msgspec.Struct):
    resource: _Resource | None = None  # once it is done
    rewriteToken: str = ""  # noqa: N815  # GCS's word


class Described(msgspec.Struct, frozen=True):
    """A resource that was read: the object, its body only if it is small, and the body's size."""

    stored: Stored
    size: int


_encode = msgspec.json.Encoder().encode
_decode_resource = msgspec.json.Decoder(_Resource, strict=False).decode
_decode_rewrite = msgspec.json.Decoder(_Rewrite, strict=False).decode
_decode_bucket = msgspec.json.Decoder(_Bucket, strict=False).decode
_decode_items = msgspec.json.Decoder(_Items, strict=False).decode


def upload(name: str, body: bytes, meta: dict[str, str], inline: bool, boundary: str) -> Upload:
    """The multipart/related POST that makes the object.

    Raises:
        StoreRefused: the body or the metadata are larger than GCS takes.
    """
    if len(body) > BODY_BYTES_MAX:
        raise StoreRefused(
            f"the object {name!r} would have {len(body):,} bytes, and at most "
            f"{BODY_BYTES_MAX:,} are stored as one value",
            hint="Keep large data in artifacts and pass their names around instead.",
        )
    resource = _encode(_Insert(name, _metadata(name, body, meta, inline)))
    kind = b"application/json" if body[:1] in (b"{", b"[") else b"application/octet-stream"
    mark = boundary.encode()
    data = b"".join(
        (
            b"--", mark, b"\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n",
            resource,
            b"\r\n--", mark, b"\r\nContent-Type: ", kind, b"\r\n\r\n",
            body,
            b"\r\n--", mark, b"--\r\n",
        )
    )  # fmt: skip
    return Upload(data, f"multipart/related; boundary={boundary}")


def written(answer: bytes) -> Written:
    """From the answer to an upload.

    Raises:
        msgspec.MsgspecError: it is not what GCS answers.
    """
    resource = _decode_resource(answer)
    return Written(resource.generation, resource.updated.timestamp())


def rewritten(answer: bytes) -> Written | str:
    """From the answer to a rewrite: the copy, or the token with which to go on.

    Raises:
        msgspec.MsgspecError: it is not what GCS answers.
    """
    found = _decode_rewrite(answer)
    if found.resource is None:
        if not found.rewriteToken:
            raise msgspec.ValidationError("it has neither the copy nor a token to go on with")
        return found.rewriteToken
    return Written(found.resource.generation, found.resource.updated.timestamp())


def described(name: str, answer: bytes) -> Described:
    """From the answer to a read of the resource of `name`.

    Raises:
        msgspec.MsgspecError: it is not what GCS answers.
    """
    resource = _decode_resource(answer)
    return Described(_stored(name, resource), resource.size)


def page(prefix: str, answer: bytes) -> Page:
    """From the answer to a list; `prefix` is taken off the names.

    Raises:
        msgspec.MsgspecError: it is not what GCS answers.
    """
    found = _decode_items(answer)
    cut = len(prefix)
    # An object called as the prefix itself is what consoles make to show a folder.
    items = [_stored(item.name[cut:], item) for item in found.items if len(item.name) > cut]
    return Page(items, found.nextPageToken or None)


def keeps(bucket: str, answer: bytes) -> Kept | None:
    """From the answer to a look at a bucket: what keeps its objects, if anything does.

    Args:
        bucket: its URL without a prefix.

    Raises:
        msgspec.MsgspecError: it is not what GCS answers.
    """
    found = _decode_bucket(answer)
    policy = found.retentionPolicy
    kept = keeping.by_retention(bucket, policy.retentionPeriod, locked=policy.isLocked)
    return kept or keeping.by_hold(bucket, by_default=found.defaultEventBasedHold)


def _metadata(name: str, body: bytes, meta: dict[str, str], inline: bool) -> dict[str, str]:
    used = _bytes_of(meta)
    if used > META_BYTES_MAX:
        raise StoreRefused(
            f"the metadata of the object {name!r} has {used:,} bytes, and Google Cloud Storage "
            f"takes {META_BYTES_MAX:,}",
            hint="Use shorter labels and tags.",
        )
    if not inline or len(body) > INLINE_BYTES_MAX:
        return meta
    carried = _carried(body)
    if used + _bytes_of(carried) > META_BYTES_MAX:
        return meta
    return {**meta, **carried}


def _carried(body: bytes) -> dict[str, str]:
    """The body as metadata that comes back as it was, whatever a header would make of it."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    if text and text.isprintable() and text[0] != " " and text[-1] != " ":
        return {_BODY: text}
    return {_BODY64: b2a_base64(body, newline=False).decode() or _EMPTY}


def _bytes_of(meta: dict[str, str]) -> int:
    total = 0
    for text in (*meta, *meta.values()):
        total += len(text) if text.isascii() else len(text.encode())
    return total


def _stored(name: str, resource: _Resource) -> Stored:
    updated = resource.updated.timestamp()
    created = updated if resource.timeCreated is None else resource.timeCreated.timestamp()
    meta = resource.metadata
    body = _uncarried(meta)
    return Stored(name, resource.generation, created, updated, meta, body)


def _uncarried(meta: dict[str, str]) -> bytes | None:
    """Take the body out of the metadata; None if it is not there."""
    text = meta.pop(_BODY, None)
    if text is not None:
        return text.encode()
    coded = meta.pop(_BODY64, None)
    if coded is None:
        return None
    try:
        return b"" if coded == _EMPTY else a2b_base64(coded)
    except ValueError:
        return None  # somebody edited it; the body itself is still there
