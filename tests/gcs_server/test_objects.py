"""Conformance: conditions on get, download, patch, update and delete, and what they answer."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from google.api_core.exceptions import NotFound

from tests.gcs_server.targets import Target, generation_of

# What fails, as the client names conditions, on an object of generation g, metageneration 1.
REFUSED: list[tuple[str, int, int]] = [
    ("if_generation_match", +1, 412),
    ("if_generation_not_match", 0, 304),
    ("if_metageneration_match", 2, 412),
    ("if_metageneration_not_match", 1, 304),
]
every_condition = pytest.mark.parametrize(
    ("condition", "value", "status"), REFUSED, ids=[name for name, _, _ in REFUSED]
)


def conditions(generation: int, condition: str, value: int) -> dict[str, Any]:
    return {condition: value if "metageneration" in condition else generation + value}


def satisfied(generation: int) -> dict[str, Any]:
    """All four conditions, such that they hold."""
    return {
        "if_generation_match": generation,
        "if_generation_not_match": generation + 1,
        "if_metageneration_match": 1,
        "if_metageneration_not_match": 2,
    }


@every_condition
def test_get_refused(target: Target, condition: str, value: int, status: int) -> None:
    """Metadata are given only if every condition holds."""
    blob = target.create()
    with target.refuses(status):
        blob.reload(**conditions(generation_of(blob), condition, value))


@every_condition
def test_download_refused(target: Target, condition: str, value: int, status: int) -> None:
    """Content is given only if every condition holds."""
    blob = target.create()
    with target.refuses(status):
        blob.download_as_bytes(**conditions(generation_of(blob), condition, value))


@every_condition
def test_patch_refused(target: Target, condition: str, value: int, status: int) -> None:
    """A patch whose condition fails changes nothing."""
    blob = target.create(a="1")
    changed = target.blob(blob.name)
    changed.metadata = {"a": "2"}

    with target.refuses(status):
        changed.patch(**conditions(generation_of(blob), condition, value))
    assert target.bucket.get_blob(blob.name).metadata == {"a": "1"}


@every_condition
def test_update_refused(target: Target, condition: str, value: int, status: int) -> None:
    """An update whose condition fails changes nothing."""
    blob = target.create(a="1")
    changed = target.blob(blob.name)
    changed.metadata = {"a": "2"}

    with target.refuses(status):
        changed.update(**conditions(generation_of(blob), condition, value))
    assert target.bucket.get_blob(blob.name).metadata == {"a": "1"}


@every_condition
def test_delete_refused(target: Target, condition: str, value: int, status: int) -> None:
    """A delete whose condition fails deletes nothing."""
    blob = target.create()
    plain = target.blob(blob.name)
    with target.refuses(status):
        plain.delete(**conditions(generation_of(blob), condition, value))
    assert target.read(blob.name) == b"first"


def test_everything_passes_when_all_conditions_hold(target: Target) -> None:
    """Four conditions at once, all true, on every verb."""
    blob = target.create()
    holds = satisfied(generation_of(blob))
    plain = target.blob(blob.name)

    plain.reload(**holds)
    assert plain.download_as_bytes(**holds) == b"first"
    plain.metadata = {"a": "1"}
    plain.patch(**holds)
    assert plain.metageneration == 2
    target.blob(blob.name).delete(**{**holds, **dict.fromkeys(list(holds)[2:])})
    assert target.bucket.get_blob(blob.name) is None


def test_what_is_not_there(target: Target) -> None:
    """Get, download, patch and delete of no object are 404, whatever their conditions."""
    blob = target.blob()
    with target.refuses(404, blob):
        blob.reload()
    with target.refuses(404, blob):
        blob.reload(if_generation_match=5)
    with target.refuses(404, blob):
        blob.download_as_bytes()
    with target.refuses(404, blob):
        blob.patch()
    with target.refuses(404, blob):
        blob.delete()
    with target.refuses(404, blob):
        blob.delete(if_generation_match=5)


def test_another_generation_is_not_there(target: Target) -> None:
    """`generation` names one generation; another than the live one does not exist."""
    blob = target.create()
    other = target.blob(blob.name, generation_of(blob) + 1)
    with target.refuses(404, blob):
        other.reload()
    with pytest.raises(NotFound):
        other.download_as_bytes()


def test_delete_by_generation(target: Target) -> None:
    """A delete that names another generation deletes nothing; one that names the live one does."""
    blob = target.create()
    with target.refuses(404, blob):
        target.blob(blob.name, generation_of(blob) + 1).delete()
    assert target.read(blob.name) == b"first"
    target.blob(blob.name, generation_of(blob)).delete()
    assert target.bucket.get_blob(blob.name) is None


def test_delete_answers_204(target: Target) -> None:
    """A delete says no more than that it is done."""
    blob = target.create()
    answer = target.done("DELETE", target.object_path(blob.name))
    assert (answer.status_code, answer.content) == (204, b"")


def test_create_after_delete_is_another_generation(target: Target) -> None:
    """A name that was deleted can be created again, and its old generation stays gone."""
    blob = target.create()
    old = generation_of(blob)
    blob.delete()
    again = target.create(blob.name, b"second")

    assert generation_of(again) != old
    with target.refuses(412):
        target.blob(blob.name).delete(if_generation_match=old)


def test_patch_raises_the_metageneration_alone(target: Target) -> None:
    """A patch keeps generation and creation time; metageneration and `updated` go up."""
    blob = target.create(a="1")
    before = target.send("GET", target.object_path(blob.name))
    blob.metadata = {"a": "2"}
    blob.patch(if_metageneration_match=1)
    after = target.send("GET", target.object_path(blob.name))

    assert after["generation"] == before["generation"]
    assert after["timeCreated"] == before["timeCreated"]
    assert after["metageneration"] == "2"
    assert after["updated"] >= before["updated"]
    assert after["etag"] != before["etag"]
    assert target.read(blob.name) == b"first"


def test_patch_merges(target: Target) -> None:
    """A patch touches only the keys it mentions."""
    blob = target.create(a="1", b="2")
    patched = patch(target, blob.name, {"metadata": {"b": "3", "c": "4"}})
    assert patched["metadata"] == {"a": "1", "b": "3", "c": "4"}


def test_patch_null_removes(target: Target) -> None:
    """`null` removes a key of the metadata, all of them, or a setting."""
    blob = target.create(a="1", b="2")
    patched = patch(target, blob.name, {"metadata": {"a": None}, "contentType": None})
    assert patched["metadata"] == {"b": "2"}
    assert "contentType" not in patched
    assert "metadata" not in patch(target, blob.name, {"metadata": None})


def test_update_replaces(target: Target) -> None:
    """What an update does not mention is gone."""
    blob = target.create(a="1", b="2")
    updated = target.send(
        "PUT", target.object_path(blob.name), json={"metadata": {"c": "3"}, "cacheControl": "no"}
    )
    assert updated["metadata"] == {"c": "3"}
    assert updated["cacheControl"] == "no"
    assert updated["metageneration"] == "2"


def test_custom_time_never_goes_back(target: Target) -> None:
    """A customTime can be set and moved forward, never back."""
    blob = target.create()
    moment = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    blob.custom_time = moment
    blob.patch()
    assert target.bucket.get_blob(blob.name).custom_time == moment

    with target.refuses_other(400):
        patch(target, blob.name, {"customTime": "2030-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("wanted", "got", "content_range"),
    [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=8-100", b"89", "bytes 8-9/10"),
    ],
)
def test_a_range_of_the_content(
    target: Target, wanted: str, got: bytes, content_range: str
) -> None:
    """A download may ask for some of the bytes."""
    blob = target.create(data=b"0123456789")
    path = target.object_path(blob.name)
    answer = target.raw("GET", path, params={"alt": "media"}, headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (206, got)
    assert answer.headers["Content-Range"] == content_range


def test_a_range_behind_the_end(target: Target) -> None:
    """A range without a byte in it is 416."""
    blob = target.create(data=b"0123456789")
    path = target.object_path(blob.name)
    answer = target.raw("GET", path, params={"alt": "media"}, headers={"Range": "bytes=10-"})
    assert answer.status_code == 416


def test_fields_of_one_object(target: Target) -> None:
    """`fields` leaves only what it names."""
    blob = target.create(a="1", b="2")
    fields = {"fields": "name,metadata/a,generation"}
    answer = target.send("GET", target.object_path(blob.name), params=fields)
    assert answer == {
        "name": blob.name,
        "metadata": {"a": "1"},
        "generation": str(blob.generation),
    }


@pytest.mark.parametrize("text", ["a(", "a)", ",a", "a,,b", "a/", "()"])
def test_fields_that_mean_nothing(target: Target, text: str) -> None:
    """A selection that cannot be read is 400."""
    blob = target.create()
    with target.refuses_other(400):
        target.send("GET", target.object_path(blob.name), params={"fields": text})


def test_the_servers_time(target: Target) -> None:
    """Answers carry a `Date`, and times of objects are in milliseconds, close to it."""
    blob = target.create()
    answer = target.raw("GET", target.object_path(blob.name))
    date = parsedate_to_datetime(answer.headers["Date"])
    updated = answer.json()["updated"]

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", updated)
    assert abs(datetime.fromisoformat(updated) - date) < timedelta(seconds=5)


@pytest.mark.parametrize(
    "end",
    [
        "a b",
        "per%cent",
        "hash#?&=+",
        "ünï/✓/𝄞",
        "double//slash",
        "end/",
        "/start",
        ".",
        "'\"<>|*",
        "long" * 200,
    ],
)
def test_any_name(target: Target, end: str) -> None:
    """A name is any UTF-8 of up to 1,024 bytes; it comes back as it was given."""
    name = target.name(end)
    blob = target.create(name, end.encode())

    assert target.read(name) == end.encode()
    assert [item.name for item in target.client.list_blobs(target.bucket, prefix=name)] == [name]
    target.bucket.blob(name).reload(if_generation_match=blob.generation)
    target.bucket.delete_blob(name)


def test_an_object_above_others(target: Target) -> None:
    """`run` and `run/step` are two objects; there are no folders."""
    name = target.name("run")
    target.create(name, b"run")
    target.create(name + "/step", b"step")
    assert (target.read(name), target.read(name + "/step")) == (b"run", b"step")


@pytest.mark.parametrize("name", ["x" * 1025, "é" * 513, "new\nline", ".", ".."])
def test_a_name_that_cannot_be(target: Target, name: str) -> None:
    """Names that are too long or break lines are 400."""
    params = {"uploadType": "media", "name": name}
    with target.refuses_other(400):
        target.send("POST", "/upload" + target.path + "/o", params=params, data=b"")


def test_metadata_over_8_kib(target: Target) -> None:
    """Custom metadata have 8 KiB in all, keys included."""
    fits = {"k": "v" * 8191}
    blob = target.create(**fits)
    assert target.bucket.get_blob(blob.name).metadata == fits

    with target.refuses_other(400):
        target.create(k="v" * 8192)
    with target.refuses_other(400):
        patch(target, blob.name, {"metadata": {"one": "more"}})


def patch(target: Target, name: str, body: dict[str, Any]) -> dict[str, Any]:
    return target.send("PATCH", target.object_path(name), json=body)
