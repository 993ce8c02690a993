"""The verbs on one object: get, media, insert, patch, update, delete, restore.

A verb reads what is there, checks conditions, protection and rate in this order, and commits,
all under the bucket's lock.
"""

from __future__ import annotations

import re

from msgspec import UNSET

from durable.testing.gcs.conditions import Conditions, conditions, flag, integer
from durable.testing.gcs.generations import crc32c_of, md5_of
from durable.testing.gcs.limits import check_metadata, check_name
from durable.testing.gcs.operations import Operation
from durable.testing.gcs.refusals import (
    Refusal,
    condition_not_met,
    invalid,
    no_object,
    not_modified,
    required,
)
from durable.testing.gcs.resources import (
    ObjectBody,
    Settings,
    Version,
    change_settings,
    etag,
    parse_body,
)
from durable.testing.gcs.wire import Response

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def get(op: Operation) -> Response:
    """The resource."""
    with op.bucket.table.lock:
        version = _soft_deleted(op) if flag(op.params, "softDeleted") else op.existing()
    _check_read(op, version)
    return op.answer(version)


def media(op: Operation) -> Response:
    """The body, or a range of it."""
    with op.bucket.table.lock:
        version = op.existing()
    _check_read(op, version)
    body = version.stored.body or b""
    settings = version.attributes.settings
    headers = _media_headers(version)
    status, part = 200, body
    wanted = _range(op.request.headers.get("range", ""), len(body))
    if wanted is not None:
        start, end = wanted
        status, part = 206, body[start:end]
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
    content_type = str(settings.get("contentType", "application/octet-stream"))
    return Response(status, part, content_type, headers)


def commit(
    op: Operation,
    name: str,
    body: bytes,
    sent: ObjectBody,
    demanded: Conditions,
    *,
    content_type: str = "application/octet-stream",
) -> Version:
    """Insert: what every kind of upload ends in.

    Args:
        sent: the resource that came with it.
        content_type: of the media, unless the resource says another.
    """
    check_name(name)
    metadata = new_metadata(sent)
    settings = new_settings(op, sent, content_type)
    _check_hashes(op, sent, body)
    bucket = op.bucket
    with bucket.table.lock:
        demand(op, name, demanded)
        return bucket.generations.put(name, body, metadata, settings, op.now)


def demand(op: Operation, name: str, demanded: Conditions, *sources: str) -> None:
    """May a new generation of that name be made now? Under the lock, just before it is.

    Args:
        sources: other objects that are changed by it.

    Raises:
        Refusal: 412 or 304 by the conditions, 403 by a hold or retention, 429 by the rate.
    """
    bucket = op.target_bucket
    live = bucket.generations.live(name)
    demanded.check(None if live is None else live.numbers)
    if live is not None:
        bucket.protect(live, op.now)
    bucket.admit(op.now, name, *sources)


def patch(op: Operation) -> Response:
    """Change what the body mentions; `null` removes."""
    sent = parse_body(op.request.body)
    with op.bucket.table.lock:
        version = _to_change(op)
        metadata = _merge_metadata(version.stored.meta, sent)
        settings = change_settings(version.attributes.settings, sent)
        return op.answer(_amend(op, version, metadata, settings))


def update(op: Operation) -> Response:
    """Replace everything that can be changed."""
    sent = parse_body(op.request.body)
    with op.bucket.table.lock:
        version = _to_change(op)
        old = version.attributes.settings
        kept: Settings = {k: old[k] for k in old if k in ("customTime", "storageClass")}
        settings = change_settings(kept, sent)
        return op.answer(_amend(op, version, new_metadata(sent), settings))


def delete(op: Operation) -> Response:
    """Delete the live object, or for good the generation that is named."""
    with op.bucket.table.lock:
        version = op.existing()
        conditions(op.params).check(version.numbers)
        op.bucket.protect(version, op.now)
        op.bucket.admit(op.now, op.name)
        op.bucket.generations.remove(version, op.now, for_good="generation" in op.params)
    return Response(204)


def restore(op: Operation) -> Response:
    """Make a soft-deleted generation live again, as a new generation."""
    with op.bucket.table.lock:
        version = _soft_deleted(op)
        demand(op, op.name, conditions(op.params))
        return op.answer(op.bucket.generations.restore(version, op.now))


def new_metadata(sent: ObjectBody) -> dict[str, str]:
    """The custom metadata of a new object."""
    return _merge_metadata({}, sent)


def new_settings(op: Operation, sent: ObjectBody, content_type: str) -> Settings:
    """The settings of a new object."""
    settings = change_settings({"contentType": content_type}, sent)
    if op.target_bucket.rules.default_event_based_hold and sent.event_based_hold is UNSET:
        settings["eventBasedHold"] = True
    return settings


def _merge_metadata(metadata: dict[str, str], sent: ObjectBody) -> dict[str, str]:
    changes = sent.metadata
    if changes is UNSET:
        return metadata
    if changes is None:
        return {}
    merged = dict(metadata)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    check_metadata(merged)
    return merged


def _to_change(op: Operation) -> Version:
    version = op.existing()
    conditions(op.params).check(version.numbers)
    op.bucket.admit(op.now, op.name)
    return version


def _amend(
    op: Operation, version: Version, metadata: dict[str, str], settings: Settings
) -> Version:
    held = version.attributes.settings.get("eventBasedHold")
    released = op.now if held and not settings.get("eventBasedHold") else None
    return op.bucket.generations.amend(version, metadata, settings, op.now, released=released)


def _soft_deleted(op: Operation) -> Version:
    generation = integer(op.params, "generation")
    if generation is None:
        raise required("generation")
    for version in op.bucket.generations.soft_deleted(op.now):
        if version.stored.name == op.name and version.stored.generation == generation:
            return version
    raise no_object(op.bucket.name, op.name)


def _check_read(op: Operation, version: Version) -> None:
    conditions(op.params).check(version.numbers)
    for header, refusal in (("if-match", condition_not_met), ("if-none-match", not_modified)):
        tags = op.request.headers.get(header)
        if tags is not None:
            matches = etag(version.numbers) in [tag.strip('" ') for tag in tags.split(",")]
            if matches == (header == "if-none-match"):
                raise refusal()


def _check_hashes(op: Operation, sent: ObjectBody, body: bytes) -> None:
    """What the client says the content's hashes are must be so."""
    given: list[tuple[str, str]] = []
    if isinstance(sent.md5_hash, str):
        given.append(("md5", sent.md5_hash))
    if isinstance(sent.crc32c, str):
        given.append(("crc32c", sent.crc32c))
    header = op.request.headers.get("x-goog-hash")
    if header is not None:
        for item in header.split(","):
            kind, _, value = item.strip().partition("=")
            given.append((kind, value))
    for kind, value in given:
        actual = md5_of(body) if kind == "md5" else crc32c_of(body)
        if value != actual:
            hash_ = "MD5 hash" if kind == "md5" else "CRC32C"
            raise invalid(
                f'Provided {hash_} "{value}" doesn\'t match calculated {hash_} "{actual}".'
            )


def _media_headers(version: Version) -> dict[str, str]:
    attributes, settings = version.attributes, version.attributes.settings
    size = len(version.stored.body or b"")
    hashes = f"crc32c={attributes.crc32c}"
    if attributes.md5 is not None:
        hashes += f",md5={attributes.md5}"
    headers = {
        "ETag": etag(version.numbers),
        "X-Goog-Generation": str(version.stored.generation),
        "X-Goog-Metageneration": str(attributes.metageneration),
        "X-Goog-Hash": hashes,
        "X-Goog-Storage-Class": str(settings.get("storageClass", "STANDARD")),
        "X-Goog-Stored-Content-Encoding": str(settings.get("contentEncoding", "identity")),
        "X-Goog-Stored-Content-Length": str(size),
        "Accept-Ranges": "bytes",
    }
    for name, header in (
        ("cacheControl", "Cache-Control"),
        ("contentDisposition", "Content-Disposition"),
        ("contentEncoding", "Content-Encoding"),
        ("contentLanguage", "Content-Language"),
    ):
        if name in settings:
            headers[header] = str(settings[name])
    return headers


def _range(header: str, size: int) -> tuple[int, int] | None:
    """The first byte and the one behind the last that a Range header asks for.

    None: no header, or one that says nothing to us, as HTTP has it.
    """
    match = _RANGE.fullmatch(header.strip())
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        start, end = max(0, size - int(match[2])), size
    else:
        start = int(match[1])
        end = min(int(match[2]) + 1, size) if match[2] else size
        if match[2] and int(match[2]) < start:
            return None
    if start >= size:
        raise Refusal(
            416,
            "requestedRangeNotSatisfiable",
            "Request range not satisfiable",
            location=("header", "Range"),
        )
    return start, end
