"""Lists: names in byte order, page by page, with an opaque token that holds a name.

A token says where to go on, not how far we came: objects that come and go between two pages
neither hide nor repeat others.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from durable.testing.gcs.conditions import flag, integer
from durable.testing.gcs.fields import Selection, parse_fields, select
from durable.testing.gcs.operations import Operation
from durable.testing.gcs.refusals import Refusal, invalid
from durable.testing.gcs.resources import Version, object_resource
from durable.testing.gcs.wire import Response

RESULTS_MAX = 1000  # items and prefixes of one page
_ALL = 2**62  # a sequence that no version reaches


class _Mark(NamedTuple):
    """Where a page begins: at this name, behind what came before this place among its versions."""

    name: str
    skip: int = 0  # versions of the name up to this sequence are on earlier pages


class _Query(NamedTuple):
    prefix: str
    delimiter: str
    end: str
    trailing: bool  # an object whose name is a prefix is an item as well
    versions: bool


class _Found(NamedTuple):
    """One line of a list: a version, or a prefix that stands for many."""

    mark: _Mark
    version: Version | None
    group: str | None


def list_objects(op: Operation) -> Response:
    """A page of the bucket's objects."""
    limit = integer(op.params, "maxResults")
    if limit == 0:
        raise invalid("Invalid value for maxResults: it must be positive.", "maxResults")
    limit = min(limit or RESULTS_MAX, RESULTS_MAX)
    if op.request.items_max is not None:
        limit = min(limit, op.request.items_max)
    items: list[Version] = []
    groups: list[str] = []
    token = None
    with op.bucket.table.lock:
        for found in _lines(op):
            if len(items) + len(groups) >= limit:
                token = _encode_token(found.mark)
                break
            if found.version is not None:
                items.append(found.version)
            elif found.group is not None:
                groups.append(found.group)
    return _answer(op, items, groups, token)


def _lines(op: Operation) -> Iterator[_Found]:
    params = op.params
    query = _Query(
        params.get("prefix", ""),
        params.get("delimiter", ""),
        params.get("endOffset", ""),
        flag(params, "includeTrailingDelimiter"),
        flag(params, "versions"),
    )
    mark = _Mark(max(query.prefix, params.get("startOffset", "")))
    if "pageToken" in params:
        mark = max(mark, _decode_token(params["pageToken"]))
    if flag(params, "softDeleted"):
        return _soft_lines(op, query, mark)
    return _live_lines(op, query, mark)


def _live_lines(op: Operation, query: _Query, mark: _Mark) -> Iterator[_Found]:
    generations = op.bucket.generations
    start: str | None = mark.name
    while start is not None:
        names, start = generations.names(start, versions=query.versions), None
        for name in names:
            if not name.startswith(query.prefix) or (query.end and name >= query.end):
                return
            group = _group(query, name)
            if group is None or (query.trailing and group == name):
                yield from _versions(op, query, name, mark)
            if group is not None:
                # An object of that very name was on the line before, if trailing ones are wanted.
                yield _Found(_Mark(group, _ALL if query.trailing else 0), None, group)
                start = after_all(group)
                break  # what else the prefix stands for is passed over, not walked through


def _versions(op: Operation, query: _Query, name: str, mark: _Mark) -> Iterator[_Found]:
    generations = op.bucket.generations
    skip = mark.skip if name == mark.name else 0
    if skip == _ALL:
        return
    if not query.versions:
        version = generations.live(name)
        if version is not None:
            yield _Found(_Mark(name), version, None)
        return
    before = 0
    for version in generations.versions(name):
        if version.sequence > skip or not version.sequence:
            yield _Found(_Mark(name, before), version, None)
        before = version.sequence


def _soft_lines(op: Operation, query: _Query, mark: _Mark) -> Iterator[_Found]:
    for version in op.bucket.generations.soft_deleted(op.now):
        name = version.stored.name
        at = _Mark(name, version.sequence - 1)
        if name.startswith(query.prefix) and not (query.end and name >= query.end) and at >= mark:
            yield _Found(at, version, None)


def _group(query: _Query, name: str) -> str | None:
    """The prefix that stands for the name, if the delimiter makes it one of many."""
    if not query.delimiter:
        return None
    at = name.find(query.delimiter, len(query.prefix))
    return None if at < 0 else name[: at + len(query.delimiter)]


def after_all(prefix: str) -> str | None:
    """The first name behind all that begin with `prefix`; None if there can be none."""
    while prefix:
        last = ord(prefix[-1]) + 1
        if last <= 0x10FFFF:
            # Surrogates are no characters; no name has one.
            return prefix[:-1] + chr(0xE000 if 0xD800 <= last < 0xE000 else last)
        prefix = prefix[:-1]
    return None


def _answer(op: Operation, items: list[Version], groups: list[str], token: str | None) -> Response:
    fields = op.params.get("fields")
    selection = None if fields is None else parse_fields(fields)
    page: dict[str, Any] = {"kind": "storage#objects"}
    if token is not None:
        page["nextPageToken"] = token
    if groups:
        page["prefixes"] = groups
    if items:
        page["items"] = items
    if selection is not None:
        page = select(page, selection if "*" in selection else dict.fromkeys(selection))
    if "items" in page:
        page["items"] = _resources(op, items, selection)
    return Response(200, msgspec.json.encode(page))


def _resources(
    op: Operation, items: list[Version], selection: Selection | None
) -> list[dict[str, Any]]:
    """The items as JSON values, with the fields of them that are wanted."""
    place = op.bucket.place(op.base)
    wanted = None if selection is None else selection.get("items")
    if wanted is None or "*" in wanted:
        return [object_resource(place, item) for item in items]
    resources = [object_resource(place, item, wanted) for item in items]
    if any(part is not None for part in wanted.values()):
        return [select(resource, wanted) for resource in resources]
    return resources


def _encode_token(mark: _Mark) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(mark)).decode().rstrip("=")


def _decode_token(token: str) -> _Mark:
    try:
        data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        return msgspec.json.decode(data, type=_Mark)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise Refusal(
            400,
            "invalid",
            "Invalid page token.",
            location=("parameter", "pageToken"),
        ) from None
