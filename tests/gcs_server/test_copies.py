"""Conformance: copy, rewrite, compose and move, with conditions on both ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from google.cloud.storage import Blob

from durable.store.memory import Bucket
from durable.testing.gcs import Fault, Handle, Service, serving
from tests.gcs_server.conftest import client_of
from tests.gcs_server.plain import Answer, Http, object_path
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


# -- rewrites in several calls -------------------------------------------------------------------

MIB = 1 << 20


def test_a_rewrite_in_parts(target: Target) -> None:
    """Between storage classes a client says how much a call may do; the last makes the object."""
    data = bytes(range(256)) * (9 * MIB // 4 // 256)
    source, name = target.create(data=data), target.name("new")
    to = f"{target.object_path(source.name)}/rewriteTo{target.object_path(name)[11:]}"
    params = {"maxBytesRewrittenPerCall": str(MIB), "ifGenerationMatch": "0"}
    answers = []
    while not answers or not answers[-1]["done"]:
        if answers:
            params["rewriteToken"] = answers[-1]["rewriteToken"]
            assert target.bucket.get_blob(name) is None
        answers.append(target.send("POST", to, json={"storageClass": "NEARLINE"}, params=params))

    assert len(answers) == 3
    assert [answer["kind"] for answer in answers] == ["storage#rewriteResponse"] * 3
    assert [answer["objectSize"] for answer in answers] == [str(len(data))] * 3
    assert [int(answer["totalBytesRewritten"]) for answer in answers] == [MIB, 2 * MIB, len(data)]
    assert ["resource" in answer for answer in answers] == [False, False, True]
    assert "rewriteToken" not in answers[-1]
    assert answers[-1]["resource"]["storageClass"] == "NEARLINE"
    assert target.read(name) == data


@contextmanager
def in_parts(size: int = 1) -> Iterator[tuple[Handle, Http]]:
    """A server that rewrites so many bytes in a call, with an object `a` of three."""
    with serving(Service({"bucket": Bucket()})) as server, Http(server.url) as http:
        server.service.faults.add(Fault("short_rewrite", size=size))
        http.create("a", b"abc")
        yield server, http


def step(http: Http, token: str | None = None, /, body: object = None, **params: object) -> Answer:
    """A call of the rewrite of `a` to `b`."""
    if token is not None:
        params["rewriteToken"] = token
    return http.call("POST", f"{object_path('a')}/rewriteTo/b/bucket/o/b", body, **params)


def token_of(answer: Answer) -> str:
    assert answer.status == 200
    assert not answer.json()["done"]
    return str(answer.json()["rewriteToken"])


def test_a_server_may_want_several_calls() -> None:
    """Though the client did not ask for it. Each call has its token, which may come again."""
    with in_parts() as (server, http):
        one = token_of(step(http))
        two = token_of(step(http, one))
        assert quote(one, safe="") != one
        assert token_of(step(http, one)) not in (one, two)  # its answer may have been lost
        done = step(http, two, fields="done,totalBytesRewritten,resource(name)").json()
        assert done == {"done": True, "totalBytesRewritten": "3", "resource": {"name": "b"}}
        assert http.media("b").body == b"abc"
        assert server.service.calls.by_verb()["rewrite"] == 4


def test_a_rewrite_may_not_get_on() -> None:
    """A call may carry over nothing and still say that it goes on."""
    with in_parts(0) as (server, http):
        token = token_of(step(http))
        server.service.faults.clear()
        assert step(http, token).json()["totalBytesRewritten"] == "3"


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB + 1])
def test_a_part_is_a_multiple_of_1_mib(size: int) -> None:
    """Any other size is refused."""
    with in_parts() as (_, http):
        assert step(http, maxBytesRewrittenPerCall=size).reason == "invalid"


@pytest.mark.parametrize("condition", ["ifGenerationMatch", "ifSourceMetagenerationNotMatch"])
def test_a_condition_that_is_no_number(condition: str) -> None:
    """It is refused at once, not when all has been carried over."""
    with in_parts() as (_, http):
        assert step(http, None, None, **{condition: "x"}).reason == "invalid"


def test_the_conditions_of_the_first_call_hold_in_the_last() -> None:
    """They need not be repeated, and are decided by what is there at the end."""
    with in_parts(2) as (_, http):
        made = http.create("b", b"there").json()["generation"]
        token = token_of(step(http, ifGenerationMatch=0))
        assert step(http, token).status == 412
        assert http.delete("b", ifGenerationMatch=made).status == 204
        body = {"metadata": {"k": "v"}}
        token = token_of(step(http, body=body, ifGenerationMatch=0))
        assert step(http, token).json()["resource"]["metadata"] == {"k": "v"}
        assert step(http, token).status == 412  # done before


def test_a_rewrite_copies_one_generation() -> None:
    """What was overwritten meanwhile is not gone on with."""
    with in_parts(2) as (_, http):
        generation = http.get("a").json()["generation"]
        tokens = [token_of(step(http)), token_of(step(http, ifSourceGenerationMatch=generation))]
        http.insert("a", b"xyz")
        assert [step(http, token).status for token in tokens] == [400, 412]
        http.delete("a")
        assert step(http, tokens[0]).status == 404
        assert http.get("b").status == 404


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (None, {"ifGenerationMatch": 1}),
        (None, {"ifSourceGenerationMatch": 1}),
        (None, {"maxBytesRewrittenPerCall": 2 * MIB}),
        ({"metadata": {"k": "w"}}, {}),
        (None, {"rewriteToken": "unknown"}),
    ],
)
def test_what_goes_on_is_the_same(body: object, changed: dict[str, object]) -> None:
    """A token fits nothing but what it was given for; the same again it fits."""
    first: dict[str, object] = {"ifGenerationMatch": 0, "maxBytesRewrittenPerCall": MIB}
    sent = {"metadata": {"k": "v"}}
    with in_parts(2) as (_, http):
        token = token_of(step(http, body=sent, **first))
        refused = step(http, body=body, **{"rewriteToken": token, **changed})
        assert (refused.status, refused.reason) == (400, "invalid")
        assert refused.json()["error"]["errors"][0]["location"] == "rewriteToken"
        elsewhere = f"{object_path('a')}/rewriteTo/b/bucket/o/c"
        assert http.call("POST", elsewhere, rewriteToken=token).status == 400
        assert step(http, token, body=sent, **first).json()["done"]


def test_the_client_goes_on() -> None:
    """The reference client comes to the end with the tokens it is given."""
    with (
        in_parts() as (server, _),
        pytest.MonkeyPatch.context() as environment,
        client_of(environment, server.url) as target,
    ):
        source, copied = target.bucket.blob("a"), target.bucket.blob("b")
        token, done, size = copied.rewrite(source, if_generation_match=0)
        assert (done, size) == (1, 3)
        while token is not None:
            token, done, size = copied.rewrite(source, token, if_generation_match=0)
        assert (done, size) == (3, 3)
        assert target.read("b") == b"abc"
