"""The verbs that make an object out of others: copy, compose, move; rewrite is built on copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from durable.testing.gcs.conditions import OF_SOURCE, conditions
from durable.testing.gcs.limits import check_name
from durable.testing.gcs.objects import demand, new_metadata, new_settings
from durable.testing.gcs.operations import Operation
from durable.testing.gcs.refusals import condition_not_met, invalid, no_object, not_implemented
from durable.testing.gcs.resources import ObjectBody, Version, parse_body
from durable.testing.gcs.wire import Response

COMPOSE_SOURCES_MAX = 32


class _SourceCondition(msgspec.Struct, rename="camel"):
    if_generation_match: int | None = None


class _Source(msgspec.Struct, rename="camel"):
    name: str
    generation: int | None = None
    object_preconditions: _SourceCondition | None = None


class _Compose(msgspec.Struct, rename="camel"):
    source_objects: list[_Source]
    destination: ObjectBody = msgspec.field(default_factory=ObjectBody)
    delete_source_objects: bool = False


def copy(op: Operation) -> Response:
    """A new object with the content of another, and its metadata unless some are sent."""
    check_name(op.target)
    sent = parse_body(op.request.body)
    with both_locked(op):
        copied = duplicate(op, sent)
    return op.answer(copied, op.target_bucket)


def compose(op: Operation) -> Response:
    """A new object with the contents of up to 32 others, one after the other."""
    try:
        body = msgspec.json.decode(op.request.body, type=_Compose, strict=False)
    except msgspec.DecodeError as e:
        raise invalid(f"The body is no compose request: {e}") from e
    if body.delete_source_objects:
        raise not_implemented("deleteSourceObjects of compose")
    check_name(op.name)
    sources = body.source_objects
    if not 1 <= len(sources) <= COMPOSE_SOURCES_MAX:
        raise invalid(f"compose takes 1 to {COMPOSE_SOURCES_MAX} sources, not {len(sources)}.")
    metadata = new_metadata(body.destination)
    settings = new_settings(op, body.destination, "application/octet-stream")
    with op.bucket.table.lock:
        found = [_source(op, source) for source in sources]
        demand(op, op.name, conditions(op.params))
        composed = op.bucket.generations.put(
            op.name,
            b"".join(version.stored.body or b"" for version in found),
            metadata,
            settings,
            op.now,
            components=sum(version.attributes.components or 1 for version in found),
        )
    return op.answer(composed)


def move(op: Operation) -> Response:
    """Give an object another name, in one step."""
    check_name(op.target)
    bucket = op.bucket
    with bucket.table.lock:
        source = op.existing()
        conditions(op.params, OF_SOURCE).check(source.numbers)
        bucket.protect(source, op.now)
        if op.target == op.name:
            raise invalid("An object cannot be moved to itself.")
        demand(op, op.target, conditions(op.params), op.name)
        moved = _as_it_is(op, source)
        bucket.generations.remove(source, op.now, for_good=False)
    return op.answer(moved)


@contextmanager
def both_locked(op: Operation) -> Iterator[None]:
    """Both buckets of a copy, always in one order: copies to and fro cannot block each other."""
    first, second = sorted((op.bucket, op.target_bucket), key=lambda bucket: bucket.name)
    with first.table.lock, second.table.lock:
        yield


def duplicate(op: Operation, sent: ObjectBody) -> Version:
    """The new object of a copy, with both buckets locked.

    Args:
        sent: the resource that came with it; unless it is empty nothing but the content is copied.

    Raises:
        Refusal: 404, there is no source; what `demand` raises.
    """
    source = op.existing(parameter="sourceGeneration")
    conditions(op.params, OF_SOURCE).check(source.numbers)
    demand(op, op.target, conditions(op.params))
    if sent == ObjectBody():
        return _as_it_is(op, source)
    content_type = str(source.attributes.settings.get("contentType", "application/octet-stream"))
    return op.target_bucket.generations.put(
        op.target,
        source.stored.body or b"",
        new_metadata(sent),
        new_settings(op, sent, content_type),
        op.now,
        components=source.attributes.components,
    )


def _as_it_is(op: Operation, source: Version) -> Version:
    """The source under its new name, with all it has but holds."""
    holds = ("temporaryHold", "eventBasedHold")
    settings = {k: v for k, v in source.attributes.settings.items() if k not in holds}
    if op.target_bucket.rules.default_event_based_hold:
        settings["eventBasedHold"] = True
    return op.target_bucket.generations.put(
        op.target,
        source.stored.body or b"",
        source.stored.meta,
        settings,
        op.now,
        components=source.attributes.components,
    )


def _source(op: Operation, source: _Source) -> Version:
    found = op.bucket.generations.find(source.name, source.generation)
    if found is None:
        raise no_object(op.bucket.name, source.name)
    demanded = source.object_preconditions
    if demanded is not None and demanded.if_generation_match is not None:
        if demanded.if_generation_match != found.stored.generation:
            raise condition_not_met()
    return found
