"""Conformance: copy, rewrite, compose and move, with conditions on both ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.cloud.storage import Blob

from tests.gcs_server.targets import Target, generation_of

Make = Callable[..., Any]


def copy(target: Target, source: Blob, name: str, **conditions: int) -> None:
    target.bucket.copy_blob(source, target.bucket, name, preserve_acl=True, **conditions)


def rewrite(target: Target, source: Blob, name: str, **conditions: int) -> None:
    target.blob(name).rewrite(source, **conditions)


def move(target: Target, source: Blob, name: str, **conditions: int) -> None:
    target.bucket.move_blob(source, name, **conditions)


every_verb = pytest.mark.parametrize("make", [copy, rewrite, move])
SOURCE: list[tuple[str, int, int]] = [
    ("if_source_generation_match", +1, 412),
    ("if_source_generation_not_match", 0, 304),
    ("if_source_metageneration_match", 2, 412),
    ("if_source_metageneration_not_match", 1, 304),
]
TARGET = [(name.replace("source_", ""), value, status) for name, value, status in SOURCE]


def conditions(generation: int, condition: str, value: int) -> dict[str, int]:
    return {condition: value if "metageneration" in condition else generation + value}


@every_verb
def test_makes_another_object(target: Target, make: Make) -> None:
    """The new object has content and metadata of the source, and a generation of its own."""
    source, name = target.create(data=b"content", a="1"), target.name("new")
    make(target, source, name, if_generation_match=0)

    made = target.bucket.get_blob(name)
    assert target.read(name) == b"content"
    assert (made.metadata, made.content_type, made.metageneration) == ({"a": "1"}, "text/plain", 1)
    assert generation_of(made) != generation_of(source)
    assert (target.bucket.get_blob(source.name) is None) == (make is move)


@every_verb
def test_create_only(target: Target, make: Make) -> None:
    """An object that is there is not replaced under ifGenerationMatch=0."""
    source, there = target.create(), target.create(data=b"there")
    with target.refuses(412):
        make(target, source, there.name, if_generation_match=0)
    assert target.read(there.name) == b"there"
    assert target.read(source.name) == b"first"


@every_verb
@pytest.mark.parametrize(("condition", "value", "status"), SOURCE, ids=[c[0] for c in SOURCE])
def test_source_refused(
    target: Target, make: Make, condition: str, value: int, status: int
) -> None:
    """A condition on the source that fails makes nothing."""
    source, name = target.create(), target.name("new")
    with target.refuses(status):
        make(target, source, name, **conditions(generation_of(source), condition, value))
    assert target.bucket.get_blob(name) is None


@every_verb
@pytest.mark.parametrize(("condition", "value", "status"), TARGET, ids=[c[0] for c in TARGET])
def test_target_refused(
    target: Target, make: Make, condition: str, value: int, status: int
) -> None:
    """A condition on the target that fails changes nothing."""
    source, there = target.create(), target.create(data=b"there")
    with target.refuses(status):
        make(target, source, there.name, **conditions(generation_of(there), condition, value))
    assert target.read(there.name) == b"there"
    assert target.read(source.name) == b"first"


@every_verb
def test_no_source(target: Target, make: Make) -> None:
    """Without a source there is nothing to make."""
    source = target.blob()
    with target.refuses(404, source):
        make(target, source, target.name("new"), if_generation_match=0)


def test_compose(target: Target) -> None:
    """The parts come one after the other; the result is a new generation and has no md5."""
    parts = [target.create(data=data) for data in (b"one", b"two", b"one")]
    there = target.create(data=b"there")
    old = generation_of(there)
    there.compose(parts, if_generation_match=old)

    answer = target.send("GET", target.object_path(there.name))
    assert target.read(there.name) == b"onetwoone"
    assert answer["componentCount"] == 3
    assert "md5Hash" not in answer
    assert int(answer["generation"]) != old


@pytest.mark.parametrize("condition", ["if_generation_match", "if_metageneration_match"])
def test_compose_target_refused(target: Target, condition: str) -> None:
    """A condition on the target that fails changes nothing."""
    there = target.create(data=b"there")
    with target.refuses(412):
        target.blob(there.name).compose([target.create()], **{condition: 7})
    assert target.read(there.name) == b"there"


def test_compose_source_refused(target: Target) -> None:
    """Each source may have a condition of its own."""
    one, two = target.create(), target.create()
    new = target.blob()
    generations = [generation_of(one), generation_of(two) + 1]
    with target.refuses(412):
        new.compose([one, two], if_source_generation_match=generations)
    assert target.bucket.get_blob(new.name) is None


def test_compose_without_a_source(target: Target) -> None:
    """A part that is not there is 404."""
    missing = target.blob()
    with target.refuses(404, missing):
        target.blob().compose([target.create(), missing], if_generation_match=0, retry=None)
