"""Objects as JSON: what clients send (`ObjectBody`) and what they get back (`object_resource`)."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from durable.store import Stored
from durable.testing.gcs.refusals import invalid

Settings = dict[str, str | bool]  # by JSON name


class Attributes(msgspec.Struct, frozen=True):
    """What GCS knows of one generation besides name, body and custom metadata.

    Attributes:
        generation: whose attributes these are.
        settings: contentType, holds, customTime and the like, by JSON name.
        md5, crc32c: in base64; a composed object has no md5.
        components: how many parts a composed object has.
        released: when the event-based hold ended; retention counts from there.
    """

    generation: int
    metageneration: int
    settings: Settings
    md5: str | None
    crc32c: str
    components: int | None = None
    released: float | None = None


class Version(NamedTuple):
    """One generation: live, noncurrent (`deleted`), or soft-deleted (`hard_delete` too)."""

    stored: Stored
    attributes: Attributes
    sequence: int = 0  # order among the generations of a name that are not live
    deleted: float | None = None
    hard_delete: float | None = None

    @property
    def numbers(self) -> tuple[int, int]:
        """(generation, metageneration)."""
        return self.stored.generation, self.attributes.metageneration


class ObjectBody(msgspec.Struct, rename="camel"):
    """An object resource as clients send it: UNSET is not mentioned, None is `null`."""

    name: str | UnsetType = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET
    md5_hash: str | UnsetType | None = UNSET
    crc32c: str | UnsetType | None = UNSET
    content_type: str | UnsetType | None = UNSET
    content_encoding: str | UnsetType | None = UNSET
    content_disposition: str | UnsetType | None = UNSET
    content_language: str | UnsetType | None = UNSET
    cache_control: str | UnsetType | None = UNSET
    storage_class: str | UnsetType | None = UNSET
    custom_time: datetime | UnsetType | None = UNSET
    temporary_hold: bool | UnsetType | None = UNSET
    event_based_hold: bool | UnsetType | None = UNSET


_SETTINGS = (
    ("contentType", "content_type"),
    ("contentEncoding", "content_encoding"),
    ("contentDisposition", "content_disposition"),
    ("contentLanguage", "content_language"),
    ("cacheControl", "cache_control"),
    ("storageClass", "storage_class"),
    ("temporaryHold", "temporary_hold"),
    ("eventBasedHold", "event_based_hold"),
)
_decode_body = msgspec.json.Decoder(ObjectBody).decode


def parse_body(data: bytes) -> ObjectBody:
    """The resource in a request; without a body one that mentions nothing.

    Raises:
        Refusal: 400, it is no object resource.
    """
    if not data:
        return ObjectBody()
    try:
        return _decode_body(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise invalid(f"The body is no object resource: {e}") from e


def change_settings(settings: Settings, body: ObjectBody) -> Settings:
    """The settings with those changed that the body mentions; `null` removes one.

    Raises:
        Refusal: 400, customTime would go away or back.
    """
    changed = dict(settings)
    for name, attribute in _SETTINGS:
        value = getattr(body, attribute)
        if value is None:
            changed.pop(name, None)
        elif value is not UNSET:
            changed[name] = value
    if body.custom_time is not UNSET:
        _change_custom_time(changed, body.custom_time)
    return changed


def _change_custom_time(settings: Settings, new: datetime | None) -> None:
    if new is None:
        if "customTime" in settings:
            raise invalid("Custom time cannot be removed once it is set.")
        return
    if new.tzinfo is None:
        raise invalid("Custom time needs a time zone, as in 2030-01-02T03:04:05Z.")
    text = new.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if text < str(settings.get("customTime", "")):
        raise invalid("Custom time cannot be set to an earlier time than it has.")
    settings["customTime"] = text


def rfc3339(moment: float) -> str:
    """With milliseconds, rounded down: no time is later than it was."""
    second = int(moment // 1)
    return f"{_to_second(second)}.{int((moment - second) * 1000):03d}Z"


@lru_cache(maxsize=256)
def _to_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def etag(numbers: tuple[int, int]) -> str:
    """Of (generation, metageneration), as GCS makes it: a small protocol buffer in base64."""
    data = b"\x08" + _varint(numbers[0]) + b"\x10" + _varint(numbers[1])
    return binascii.b2a_base64(data, newline=False).decode()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Place(NamedTuple):
    """Where an object is seen: `base` is scheme, host and port, `retention` seconds or None."""

    bucket: str
    base: str
    retention: float | None = None


def link(place: Place, name: str, root: str = "/storage/v1") -> str:
    return f"{place.base}{root}/b/{place.bucket}/o/{quote(name, safe='')}"


def retained_until(version: Version, retention: float | None) -> float | None:
    """When the bucket's retention of it ends; None if it does not retain, or holds it still."""
    if retention is None or version.attributes.settings.get("eventBasedHold"):
        return None
    released = version.attributes.released
    return (version.stored.created if released is None else released) + retention


def _media_link(place: Place, version: Version) -> str:
    generation = version.stored.generation
    name = version.stored.name
    return f"{link(place, name, '/download/storage/v1')}?generation={generation}&alt=media"


def _moment(value: float | None) -> str | None:
    return None if value is None else rfc3339(value)


def _setting(name: str) -> Callable[[Place, Version], Any]:
    return lambda place, version: version.attributes.settings.get(name)


_FIELDS: dict[str, Callable[[Place, Version], Any]] = {
    "kind": lambda _place, _: "storage#object",
    "id": lambda place, v: f"{place.bucket}/{v.stored.name}/{v.stored.generation}",
    "selfLink": lambda place, v: link(place, v.stored.name),
    "mediaLink": _media_link,
    "name": lambda _, v: v.stored.name,
    "bucket": lambda place, _: place.bucket,
    "generation": lambda _, v: str(v.stored.generation),
    "metageneration": lambda _, v: str(v.attributes.metageneration),
    "storageClass": lambda _, v: v.attributes.settings.get("storageClass", "STANDARD"),
    "size": lambda _, v: str(len(v.stored.body or b"")),
    "md5Hash": lambda _, v: v.attributes.md5,
    "crc32c": lambda _, v: v.attributes.crc32c,
    "etag": lambda _, v: etag(v.numbers),
    "timeCreated": lambda _, v: rfc3339(v.stored.created),
    "updated": lambda _, v: rfc3339(v.stored.updated),
    "timeStorageClassUpdated": lambda _, v: rfc3339(v.stored.created),
    "metadata": lambda _, v: v.stored.meta or None,
    "componentCount": lambda _, v: v.attributes.components,
    "customTime": _setting("customTime"),
    "retentionExpirationTime": lambda place, v: _moment(retained_until(v, place.retention)),
    "timeDeleted": lambda _, v: None if v.hard_delete else _moment(v.deleted),
    "softDeleteTime": lambda _, v: _moment(v.deleted) if v.hard_delete else None,
    "hardDeleteTime": lambda _, v: _moment(v.hard_delete),
} | {name: _setting(name) for name, _ in _SETTINGS if name != "storageClass"}


def object_resource(
    place: Place, version: Version, only: Iterable[str] | None = None
) -> dict[str, Any]:
    """The object as JSON values; `only` these fields if given."""
    resource = {}
    for name in _FIELDS if only is None else only:
        field = _FIELDS.get(name)
        if field is not None:
            value = field(place, version)
            if value is not None:
                resource[name] = value
    return resource
