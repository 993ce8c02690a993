"""Each fault does what it says, to the calls it is for and to no others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPException
from typing import NamedTuple

import pytest

from durable.store.memory import Bucket
from durable.testing.gcs import Fault, Faults, Handle, Service, serving
from tests.facts import until
from tests.gcs_server.plain import OBJECTS, UPLOADS, Http, object_path

LOST = (ConnectionError, HTTPException)


class World(NamedTuple):
    server: Handle
    http: Http
    bucket: Bucket

    def suffers(self, *faults: Fault) -> None:
        self.server.service.faults.add(*faults)

    def there(self, name: str) -> bool:
        return self.bucket.read(name) is not None


@pytest.fixture
def world() -> Iterator[World]:
    bucket = Bucket()
    with serving(Service({"bucket": bucket})) as server, Http(server.url) as http:
        yield World(server, http, bucket)


def test_unsent(world: World) -> None:
    """The connection is reset and nothing was done."""
    world.suffers(Fault("unsent", times=1))
    with pytest.raises(LOST):
        world.http.create("a")
    assert not world.there("a")
    assert world.http.create("a").status == 200


@pytest.mark.parametrize("verb", ["insert", "patch", "delete", "compose"])
def test_reply_lost(world: World, verb: str) -> None:
    """The connection is reset though it was done; the same again is refused."""
    world.http.create("a")
    generation = world.http.get("a").json()["generation"]
    world.suffers(Fault("reply_lost", verb=verb, times=1))

    def attempt() -> int:
        match verb:
            case "insert":
                return world.http.insert("a", b"2", ifGenerationMatch=generation).status
            case "patch":
                body = {"metadata": {"a": "2"}}
                path = object_path("a")
                return world.http.call("PATCH", path, body, ifMetagenerationMatch=1).status
            case "delete":
                return world.http.delete("a", ifGenerationMatch=generation).status
            case _:
                body = {"sourceObjects": [{"name": "a"}]}
                path = object_path("b") + "/compose"
                return world.http.call("POST", path, body, ifGenerationMatch=0).status

    with pytest.raises(LOST):
        attempt()
    assert attempt() == (404 if verb == "delete" else 412)


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 502, 503, 504])
def test_refused(world: World, status: int) -> None:
    """Any status instead of doing it, with a body as GCS sends them."""
    world.suffers(Fault("refused", status=status, times=1))
    answer = world.http.create("a")

    assert answer.status == status
    assert answer.json()["error"]["code"] == status
    assert answer.json()["error"]["errors"][0]["message"]
    assert not world.there("a")
    assert world.http.create("a").status == 200  # the connection goes on


@pytest.mark.parametrize("status", [408, 429, 500, 503, 504])
def test_reply_replaced(world: World, status: int) -> None:
    """Any status though it was done."""
    world.suffers(Fault("reply_replaced", status=status, times=1))
    assert world.http.create("a").status == status
    assert world.there("a")
    assert world.http.create("a").status == 412


def test_late_lands_when_told(world: World) -> None:
    """The client sees a reset; the write is applied when the test says so."""
    world.suffers(Fault("late", times=2))
    for name in ("a", "b"):
        with pytest.raises(LOST):
            world.http.create(name, b"late")
    world.http.create("b", b"in time")
    assert not world.there("a")

    assert world.server.land() == 2
    assert world.http.media("a").body == b"late"
    assert world.http.media("b").body == b"in time"
    assert world.server.land() == 0


def test_late_lands_after_a_while(world: World) -> None:
    """With `seconds` it is applied by itself, that long after the client was given up on."""
    world.suffers(Fault("late", name="soon", seconds=0.2), Fault("late", name="hours", seconds=9e3))
    began = time.monotonic()
    for name in ("soon", "hours"):
        with pytest.raises(LOST):
            world.http.create(name)
    until(lambda: world.there("soon"))
    assert time.monotonic() - began >= 0.2
    assert not world.there("hours")


def test_twice(world: World) -> None:
    """A create that the network delivers twice is refused by itself."""
    world.suffers(Fault("twice", times=1))
    assert world.http.create("a").status == 412
    assert world.there("a")


def test_silent(world: World) -> None:
    """Nothing is done and nothing is answered, until the client gives up."""
    world.suffers(Fault("silent", times=1))
    with Http(world.server.url) as impatient:
        impatient._connection.timeout = 0.1
        with pytest.raises(TimeoutError):
            impatient.create("a")
    assert not world.there("a")


def test_slow_reply(world: World) -> None:
    """It comes late, but what it answers is done at once."""
    world.suffers(Fault("slow_reply", seconds=9e3))
    with Http(world.server.url) as impatient:
        impatient._connection.timeout = 0.1
        with pytest.raises(TimeoutError):
            impatient.create("a")
    until(lambda: world.there("a"))


def test_delayed(world: World) -> None:
    """The call is done late, though the client has long gone."""
    world.suffers(Fault("delayed", seconds=0.2))
    began = time.monotonic()
    with Http(world.server.url) as gone:
        gone._connection.request("POST", f"{UPLOADS}?uploadType=media&name=a", b"")
    until(lambda: world.there("a"))
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("size", [0, 4, 300])
def test_truncated(world: World, size: int) -> None:
    """The answer ends in the middle though it was done."""
    world.suffers(Fault("truncated", size=size, times=1))
    with pytest.raises(LOST):
        world.http.create("a")
    assert world.there("a")


def test_stale(world: World) -> None:
    """A connection that was used before is dead when it is used again; a new one is not."""
    world.suffers(Fault("stale", verb="insert"))
    assert world.http.create("a").status == 200
    with pytest.raises(LOST):
        world.http.create("b")
    assert not world.there("b")
    assert world.http.create("b").status == 200


def test_idle_connections_are_closed(world: World) -> None:
    """On demand the server closes what is open and idle."""
    world.http.create("a")
    with Http(world.server.url) as other:
        assert other.call("POST", "/_durable/close").json() == {"closed": 1}
    with pytest.raises(LOST):
        world.http.create("b")


def test_skewed(world: World) -> None:
    """Who answers has another clock: `Date`, and `updated` of what it writes."""
    honest = world.http.create("a").json()["updated"]
    world.suffers(Fault("skewed", seconds=7200.0, times=1))
    ahead = world.http.create("b").json()["updated"]
    behind = world.http.create("c").json()["updated"]
    assert honest <= behind < ahead


def test_short_page(world: World) -> None:
    """A page has fewer than asked for, even none, and a token; all pages together have all."""
    names = [f"p/{number}" for number in range(5)]
    for name in names:
        world.http.create(name)
    world.suffers(Fault("short_page", size=0, times=1), Fault("short_page", size=2))

    empty = world.http.call("GET", OBJECTS, prefix="p/").json()
    assert "items" not in empty
    found, token = [], empty["nextPageToken"]
    while token:
        page = world.http.call("GET", OBJECTS, prefix="p/", pageToken=token).json()
        assert len(page["items"]) <= 2
        found += [item["name"] for item in page["items"]]
        token = page.get("nextPageToken")
    assert found == names


def test_an_empty_page_can_be_asked_for_again_and_again(world: World) -> None:
    """An empty page moves nothing on, wherever it comes."""
    for name in "abc":
        world.http.create(name)
    world.suffers(Fault("short_page", size=1, nth=1), Fault("short_page", size=0, end=3600))
    first = world.http.call("GET", OBJECTS, startOffset="b").json()
    token = first["nextPageToken"]
    for _ in range(3):
        token = world.http.call("GET", OBJECTS, pageToken=token).json()["nextPageToken"]
    world.server.service.faults.clear()
    rest = world.http.names(pageToken=token)
    assert [item["name"] for item in first.get("items", [])] + rest == ["b", "c"]


def test_by_verb_name_and_number() -> None:
    """A fault is for some verbs, a name or prefix, one call of those that fit, so many times."""
    clock = [0.0]
    faults = Faults(
        Fault("unsent", verb="delete,patch", name="a"),
        Fault("refused", prefix="p/", nth=2),
        Fault("twice", verb="reads", times=1),
        clock=lambda: clock[0],
    )

    def kind(verb: str, name: str) -> str | None:
        plan = faults.plan(verb, "bucket", name, reused=False)
        return None if plan is None or plan.outcome is None else plan.outcome.kind

    assert kind("delete", "a") == "unsent"
    assert kind("patch", "a") == "unsent"
    assert kind("insert", "a") is None
    assert kind("delete", "ab") is None
    assert [kind("insert", "p/1") for _ in range(3)] == [None, "refused", None]
    assert [kind("media", "x"), kind("get", "x")] == ["twice", None]


def test_by_time() -> None:
    """A burst holds from `start` to `end`, counted from when it was added."""
    clock = [100.0]
    faults = Faults(Fault("refused", start=5.0, end=8.0), clock=lambda: clock[0])
    struck = []
    for clock[0] in (104.9, 105.0, 107.9, 108.0):
        struck.append(faults.plan("get", "bucket", "a", reused=False) is not None)
    assert struck == [False, True, True, False]


def test_by_chance() -> None:
    """A share of the calls suffers, the same ones for the same seed."""

    def run(seed: int) -> list[bool]:
        faults = Faults(Fault("unsent", share=0.25, seed=seed))
        return [faults.plan("get", "b", "a", reused=False) is not None for _ in range(400)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert 50 < sum(run(1)) < 150


def test_circumstances_add_to_an_outcome() -> None:
    """A delay and a loss may strike the same call; of two losses the first."""
    faults = Faults(
        Fault("delayed", seconds=1.0),
        Fault("reply_lost", times=1),
        Fault("refused", times=1),
        Fault("delayed", seconds=2.0),
    )
    kinds = []
    for _ in range(3):
        plan = faults.plan("insert", "b", "a", reused=False)
        assert plan is not None
        assert plan.delay == 3.0
        kinds.append(None if plan.outcome is None else plan.outcome.kind)
    assert kinds == ["reply_lost", "refused", None]


def test_over_http(world: World) -> None:
    """Faults are added, shown and taken away at `/_durable/faults`."""
    path = "/_durable/faults"
    added = world.http.call("POST", path, {"kind": "refused", "verb": "insert", "status": 429})
    assert added.status == 200
    assert world.http.create("a").reason == "rateLimitExceeded"
    shown = world.http.call("GET", path).json()
    assert shown == [
        {
            "fault": {"kind": "refused", "verb": "insert", "status": 429},
            "seen": 1,
            "struck": 1,
        }
    ]
    assert world.http.call("POST", path, [{"kind": "late"}]).status == 200
    assert world.http.call("DELETE", path).json() == []
    assert world.http.create("a").status == 200


@pytest.mark.parametrize("body", [{"kind": "rain"}, {"kind": "late", "verbs": "x"}, "late", {}])
def test_no_fault(world: World, body: object) -> None:
    """What is no fault is refused, so that a misspelt one does not pass for calm."""
    assert world.http.call("POST", "/_durable/faults", body).status == 400
    assert not world.server.service.faults.active


def test_landing_over_http(world: World) -> None:
    """What is late lands at `/_durable/land`."""
    world.suffers(Fault("late", times=1))
    with pytest.raises(LOST):
        world.http.create("a")
    assert world.http.call("POST", "/_durable/land").json() == {"landed": 1}
    assert world.there("a")


def test_an_outage(world: World) -> None:
    """For a while nothing listens; then the same objects are there, on the same port."""
    world.http.create("a")
    seconds, began = 0.2, time.monotonic()
    assert world.http.call("POST", "/_durable/outage", {"seconds": seconds}).status == 200

    def status() -> int:
        try:
            return world.http.get("a").status
        except (*LOST, OSError):
            return 0

    until(lambda: status() == 200)
    assert time.monotonic() - began >= seconds


def test_latency(world: World) -> None:
    """Each call takes at least so long."""
    world.server.set_latency(0.1)
    began = time.monotonic()
    assert world.http.get("a").status == 404
    assert time.monotonic() - began >= 0.1


def test_calls_of_several_connections_overlap(world: World) -> None:
    """While one takes its time, others are answered."""
    world.suffers(Fault("delayed", name="slow", seconds=9e3))
    with Http(world.server.url) as slow:
        slow._connection.request("GET", object_path("slow"))
        until(lambda: world.server.service.faults.report()[0]["struck"] == 1)
        assert world.http.get("quick").status == 404


def test_json_of_a_fault_round_trips() -> None:
    """The report of a fault can be sent again."""
    fault = Fault("late", verb="insert", seconds=1.5)
    report = Faults(fault).report()[0]["fault"]
    assert json.dumps(report) == '{"kind": "late", "verb": "insert", "seconds": 1.5}'
