"""Conformance: lists in byte order, by prefix, between offsets, by folder, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gcs_server.targets import Target

ENDS = ["a", "a/1", "a/2", "b", "b/1/x", "b/2", "c", "Z", "é", "𝄞", "ﬀ"]


@pytest.fixture(scope="module")
def folder(target: Target) -> str:
    """A prefix with objects under it."""
    folder = target.name("")
    for end in ENDS:
        target.create(folder + end, end.encode(), end=end)
    return folder


def page(target: Target, folder: str, **params: Any) -> dict[str, Any]:
    params = {name: str(value) for name, value in params.items()}
    return target.send("GET", target.path + "/o", params={"prefix": folder, **params})


def ends(folder: str, answer: dict[str, Any]) -> list[str]:
    return [item["name"].removeprefix(folder) for item in answer.get("items", [])]


def test_in_byte_order(target: Target, folder: str) -> None:
    """Names are sorted by their bytes in UTF-8."""
    assert ends(folder, page(target, folder)) == sorted(ENDS, key=str.encode)


def test_items_are_whole_resources(target: Target, folder: str) -> None:
    """A list carries all that a get does, custom metadata too."""
    for item in page(target, folder)["items"]:
        assert item == target.send("GET", target.object_path(item["name"]))
        assert item["metadata"] == {"end": item["name"].removeprefix(folder)}


def test_nothing_has_no_items(target: Target, folder: str) -> None:
    """A list without objects has no key `items`."""
    assert page(target, folder + "none/") == {"kind": "storage#objects"}


def test_prefix_need_not_end_at_a_slash(target: Target, folder: str) -> None:
    """A prefix is any beginning of a name."""
    assert ends(folder, page(target, folder + "a")) == ["a", "a/1", "a/2"]


def test_offsets(target: Target, folder: str) -> None:
    """The startOffset is the first name that may come, the endOffset the first that may not."""
    found = page(target, folder, startOffset=folder + "a/1", endOffset=folder + "b/2")
    assert ends(folder, found) == ["a/1", "a/2", "b", "b/1/x"]


def test_delimiter(target: Target, folder: str) -> None:
    """Names with a delimiter behind the prefix are shown once, as a prefix."""
    found = page(target, folder, delimiter="/")
    assert ends(folder, found) == [end for end in sorted(ENDS, key=str.encode) if "/" not in end]
    assert found["prefixes"] == [folder + "a/", folder + "b/"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_pages(target: Target, folder: str, size: int) -> None:
    """Pages of any size give every object once."""
    found, token = [], None
    while True:
        more = {} if token is None else {"pageToken": token}
        answer = page(target, folder, maxResults=size, **more)
        assert len(answer["items"]) <= size
        found += ends(folder, answer)
        token = answer.get("nextPageToken")
        if token is None:
            break
    assert found == sorted(ENDS, key=str.encode)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pages_with_prefixes(target: Target, folder: str, size: int) -> None:
    """A page counts prefixes as it counts items; each comes once."""
    found: list[str] = []
    prefixes: list[str] = []
    token = None
    while True:
        more = {} if token is None else {"pageToken": token}
        answer = page(target, folder, maxResults=size, delimiter="/", **more)
        here = ends(folder, answer), answer.get("prefixes", [])
        assert len(here[0]) + len(here[1]) <= size
        found += here[0]
        prefixes += here[1]
        token = answer.get("nextPageToken")
        if token is None:
            break
    assert found == [end for end in sorted(ENDS, key=str.encode) if "/" not in end]
    assert prefixes == [folder + "a/", folder + "b/"]


def test_pages_while_objects_come_and_go(target: Target) -> None:
    """A token names a place: what is deleted or created before it shifts nothing."""
    folder = target.name("")
    for end in "bdfh":
        target.create(folder + end)
    first = page(target, folder, maxResults=2)
    target.bucket.delete_blob(folder + "b")
    target.create(folder + "a")
    target.create(folder + "e")

    second = page(target, folder, pageToken=first["nextPageToken"])
    assert ends(folder, first) == ["b", "d"]
    assert ends(folder, second)[-2:] == ["f", "h"]
    assert "d" not in ends(folder, second)


def test_fields_of_a_list(target: Target, folder: str) -> None:
    """`fields` leaves only what it names, of the page and of each item."""
    fields = "items(name,metadata/end),nextPageToken"
    answer = page(target, folder, maxResults=2, fields=fields)
    assert answer.keys() == {"items", "nextPageToken"}
    expected = sorted(ENDS, key=str.encode)[:2]
    assert answer["items"] == [{"name": folder + e, "metadata": {"end": e}} for e in expected]


def test_fields_without_the_token(target: Target, folder: str) -> None:
    """A token that is not asked for is not given."""
    answer = page(target, folder, maxResults=2, fields="items/name")
    assert answer.keys() == {"items"}


@pytest.mark.parametrize("wrong", [{"pageToken": "?"}, {"maxResults": "many"}])
def test_a_parameter_that_cannot_be(target: Target, folder: str, wrong: dict[str, str]) -> None:
    """A token nobody gave, or a number that is none, is 400."""
    with target.refuses_other(400):
        page(target, folder, **wrong)


def test_the_client_lists_them(target: Target, folder: str) -> None:
    """The reference client finds all pages by itself."""
    found = target.client.list_blobs(target.bucket, prefix=folder, page_size=4)
    assert [blob.name for blob in found] == [folder + e for e in sorted(ENDS, key=str.encode)]
