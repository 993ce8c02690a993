"""Buckets: made and configured through the API; versions, soft delete, holds, retention, payers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from durable.store.memory import Bucket
from durable.testing.gcs import BucketState, Service, serving
from tests.gcs_server.conftest import client_of
from tests.gcs_server.plain import OBJECTS, Http, object_path
from tests.gcs_server.targets import RATE_LIMITED, Target, generation_of

WEEK = 7 * 86_400
VERSIONING = {"versioning": {"enabled": True}}


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextmanager
def bucket(clock: Clock, config: dict[str, Any] | None = None, **options: Any) -> Iterator[Http]:
    """A server with a bucket of that configuration."""
    state = BucketState("bucket", Bucket(now=clock), config)
    with serving(Service({"bucket": state}, now=clock, **options)) as it, Http(it.url) as http:
        yield http


def generation(http: Http, name: str) -> str:
    return str(http.get(name).json()["generation"])


def patch(http: Http, name: str, body: dict[str, Any]) -> int:
    return http.call("PATCH", object_path(name), body).status


# -- buckets -------------------------------------------------------------------------------------


def test_a_bucket_is_made_and_deleted(clock: Clock) -> None:
    """POST makes one, once; it is in the list; empty it can be deleted."""
    with bucket(clock) as http:
        made = http.call("POST", "/storage/v1/b", {"name": "new-one"}, project="p")
        assert made.status == 200
        assert made.json()["kind"] == "storage#bucket"
        assert made.json()["metageneration"] == "1"
        again = http.call("POST", "/storage/v1/b", {"name": "new-one"}, project="p")
        assert (again.status, again.reason) == (409, "conflict")
        listed = http.call("GET", "/storage/v1/b", project="p").json()["items"]
        assert [item["name"] for item in listed] == ["bucket", "new-one"]

        http.create("a")
        full = http.call("DELETE", "/storage/v1/b/bucket")
        assert (full.status, full.reason) == (409, "conflict")
        assert http.call("DELETE", "/storage/v1/b/new-one").status == 204
        gone = http.call("GET", "/storage/v1/b/new-one")
        assert (gone.status, gone.reason) == (404, "notFound")
        assert gone.json()["error"]["message"] == "The specified bucket does not exist."


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": 5},
        {"name": "UPPER"},
        {"name": "a"},
        {"name": "a..b"},
        {"name": "fine", "versioning": "yes"},
        {"name": "fine", "softDeletePolicy": {"retentionDurationSeconds": "60"}},
        {"name": "fine", "retentionPolicy": {"retentionPeriod": "0"}},
        {"name": "fine", "retentionPolicy": {"retentionPeriod": 0.5}},
        {"name": "fine", "retentionPolicy": {"retentionPeriod": "60"}, **VERSIONING},
        [],
    ],
)
def test_no_bucket(clock: Clock, body: object) -> None:
    """A bucket needs a name that can be and a configuration that makes sense."""
    with bucket(clock) as http:
        assert http.call("POST", "/storage/v1/b", body, project="p").status == 400
        assert http.call("GET", "/storage/v1/b/fine").status == 404


def test_a_bucket_needs_a_project(clock: Clock) -> None:
    """Who makes or lists buckets says for which project."""
    with bucket(clock) as http:
        assert http.call("POST", "/storage/v1/b", {"name": "fine"}).reason == "required"
        assert http.call("GET", "/storage/v1/b").reason == "required"


def test_a_new_bucket_has_soft_delete_on(clock: Clock) -> None:
    """As on GCS: seven days, unless it is switched off."""
    with bucket(clock) as http:
        for name, policy, seconds in (
            ("default", {}, str(WEEK)),
            ("off", {"softDeletePolicy": {"retentionDurationSeconds": "0"}}, "0"),
        ):
            body = {"name": name, **policy}
            made = http.call("POST", "/storage/v1/b", body, project="p").json()
            assert made["softDeletePolicy"]["retentionDurationSeconds"] == seconds


def test_a_patch_of_a_bucket_merges(clock: Clock) -> None:
    """It changes what it mentions, `null` removes, the metageneration goes up and can be asked."""
    with bucket(clock, {"labels": {"a": "1", "b": "2"}, "versioning": {"enabled": True}}) as http:
        path = "/storage/v1/b/bucket"
        changes = {"labels": {"a": None, "c": "3"}, "versioning": None, "name": "ignored"}
        changed = http.call("PATCH", path, changes, ifMetagenerationMatch=1).json()
        assert changed["labels"] == {"b": "2", "c": "3"}
        assert "versioning" not in changed
        assert (changed["name"], changed["metageneration"]) == ("bucket", "2")
        assert http.call("PATCH", path, {}, ifMetagenerationMatch=1).reason == "conditionNotMet"
        assert http.call("GET", path, ifMetagenerationNotMatch=2).status == 304
        replaced = http.call("PUT", path, {"storageClass": "NEARLINE"}).json()
        assert "labels" not in replaced
        assert replaced["storageClass"] == "NEARLINE"


def test_layout_and_permissions(clock: Clock) -> None:
    """What a caller may do, and whether the bucket has folders, can be asked."""
    state = BucketState("bucket", Bucket(now=clock), {"hierarchicalNamespace": {"enabled": True}})
    state.denied = {"storage.objects.delete"}
    with serving({"bucket": state}) as server, Http(server.url) as http:
        layout = http.call("GET", "/storage/v1/b/bucket/storageLayout").json()
        assert layout["hierarchicalNamespace"] == {"enabled": True}
        path = "/storage/v1/b/bucket/iam/testPermissions"
        asked = "?permissions=storage.objects.get&permissions=storage.objects.delete"
        assert http.call("GET", path + asked).json()["permissions"] == ["storage.objects.get"]


@pytest.mark.parametrize(
    ("denied", "verb"),
    [
        ("storage.objects.create", "create"),
        ("storage.objects.get", "get"),
        ("storage.objects.get", "media"),
        ("storage.objects.list", "list"),
        ("storage.objects.delete", "delete"),
        ("storage.objects.delete", "overwrite"),
        ("storage.objects.update", "patch"),
        ("storage.buckets.get", "bucket"),
    ],
)
def test_a_permission_that_is_missing(clock: Clock, denied: str, verb: str) -> None:
    """What the caller may not do is 403 and names the permission; to overwrite is to delete."""
    state = BucketState("bucket", Bucket(now=clock))
    with serving({"bucket": state}) as server, Http(server.url) as http:
        http.create("there", b"first")
        state.denied = {denied}
        attempts = {
            "create": lambda: http.create("new"),
            "get": lambda: http.get("there"),
            "media": lambda: http.media("there"),
            "list": lambda: http.call("GET", OBJECTS),
            "delete": lambda: http.delete("there"),
            "overwrite": lambda: http.insert("there", b"second"),
            "patch": lambda: http.call("PATCH", object_path("there"), {}),
            "bucket": lambda: http.call("GET", "/storage/v1/b/bucket"),
        }
        answer = attempts[verb]()
        assert answer.status == 403
        assert denied.encode() in answer.body
        state.denied = set()
        assert http.media("there").body == b"first"
        assert http.get("new").status == 404


def test_tokens(clock: Clock) -> None:
    """With tokens given, only a request that carries one of them is let in."""
    with bucket(clock, tokens=["good"]) as http:
        for header in ({}, {"Authorization": "Bearer bad"}, {"Authorization": "Basic good"}):
            answer = http.call("GET", OBJECTS, headers=header)
            assert (answer.status, answer.reason) == (401, "authError")
        assert http.call("GET", OBJECTS, headers={"Authorization": "Bearer good"}).status == 200


# -- versions and soft delete --------------------------------------------------------------------


def test_versions(clock: Clock) -> None:
    """What is overwritten or deleted stays; it can be listed, read and deleted for good."""
    with bucket(clock, {"versioning": {"enabled": True}}) as http:
        http.create("a", b"1")
        first = generation(http, "a")
        http.insert("a", b"2")
        second = generation(http, "a")
        http.delete("a")

        assert http.get("a").status == 404
        assert http.names() == []
        assert http.names(versions="true") == ["a", "a"]
        assert http.media("a", generation=first).body == b"1"
        assert "timeDeleted" in http.get("a", generation=second).json()
        assert http.create("a", b"3").status == 200  # noncurrent versions are no live object
        third = generation(http, "a")
        items = http.call("GET", OBJECTS, versions="true").json()["items"]
        assert [item["generation"] for item in items] == [first, second, third]

        assert http.delete("a", generation=second).status == 204
        assert http.get("a", generation=second).status == 404
        assert http.delete("a", generation=third).status == 204  # for good, though it is live
        assert http.get("a", generation=third).status == 404
        assert http.names(versions="true") == ["a"]


def test_pages_of_versions(clock: Clock) -> None:
    """A page may end between two versions of one name; nothing is lost or repeated."""
    with bucket(clock, {"versioning": {"enabled": True}}) as http:
        for name in ("a", "b", "b", "b", "c", "c"):
            http.insert(name)
        http.delete("c")
        whole = http.call("GET", OBJECTS, versions="true").json()["items"]
        for size in (1, 2, 3, 4):
            found, token = [], ""
            while token is not None:
                more = {"pageToken": token} if token else {}
                page = http.call("GET", OBJECTS, versions="true", maxResults=size, **more).json()
                found += page["items"]
                token = page.get("nextPageToken")
            assert found == whole


def test_a_noncurrent_version_can_be_patched(clock: Clock) -> None:
    """A patch may name a generation that is not live."""
    with bucket(clock, {"versioning": {"enabled": True}}) as http:
        http.create("a", b"1")
        first = generation(http, "a")
        http.insert("a", b"2")
        path = object_path("a")
        body = {"metadata": {"k": "v"}}
        patched = http.call("PATCH", path, body, generation=first).json()
        assert (patched["generation"], patched["metageneration"]) == (first, "2")
        assert http.get("a", generation=first).json()["metadata"] == {"k": "v"}
        assert "metadata" not in http.get("a").json()


def test_soft_delete(clock: Clock) -> None:
    """What is overwritten or deleted can be restored for a while, and is invisible meanwhile."""
    policy = {"softDeletePolicy": {"retentionDurationSeconds": WEEK}}
    with bucket(clock, policy) as http:
        http.create("a", b"1")
        first = generation(http, "a")
        http.insert("a", b"2")
        http.delete("a")

        assert http.names(versions="true") == []
        assert http.names(softDeleted="true") == ["a", "a"]
        shown = http.get("a", softDeleted="true", generation=first).json()
        assert "hardDeleteTime" in shown
        assert http.media("a", generation=first).status == 404
        path = object_path("a") + "/restore"
        restored = http.call("POST", path, generation=first, ifGenerationMatch=0)
        assert restored.status == 200
        assert restored.json()["generation"] != first
        assert http.media("a").body == b"1"
        again = http.call("POST", path, generation=first)
        assert (again.status, again.reason) == (404, "notFound")
        clock.now += WEEK
        assert http.names(softDeleted="true") == []


# -- holds and retention -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hold", "word"), [("temporaryHold", "Temporary"), ("eventBasedHold", "Event-Based")]
)
def test_holds(clock: Clock, hold: str, word: str) -> None:
    """A held object cannot be overwritten, deleted or moved, but patched, until it is released."""
    with bucket(clock) as http:
        http.create("a", b"1")
        assert patch(http, "a", {hold: True}) == 200
        for attempt in (
            http.insert("a", b"2"),
            http.delete("a"),
            http.call("POST", object_path("a") + "/moveTo/o/b"),
        ):
            assert (attempt.status, attempt.reason) == (403, "objectUnderActiveHold")
            assert f"under active {word} hold" in attempt.json()["error"]["message"]
        assert http.create("a").status == 412  # the condition is decided before the hold
        assert patch(http, "a", {hold: False}) == 200
        assert http.insert("a", b"2").status == 200


def test_default_event_based_hold(clock: Clock) -> None:
    """A bucket may hold every new object."""
    with bucket(clock, {"defaultEventBasedHold": True}) as http:
        assert http.create("a").json()["eventBasedHold"] is True
        assert http.delete("a").reason == "objectUnderActiveHold"


def test_retention(clock: Clock) -> None:
    """For so long nothing is overwritten or deleted; creating and patching go on."""
    with bucket(clock, {"retentionPolicy": {"retentionPeriod": "60"}}) as http:
        made = http.create("a", b"1").json()
        assert made["retentionExpirationTime"] == "2023-11-14T22:14:20.000Z"
        for attempt in (http.insert("a", b"2"), http.delete("a")):
            assert (attempt.status, attempt.reason) == (403, "retentionPolicyNotMet")
            message = attempt.json()["error"]["message"]
            assert message.endswith("until 2023-11-14T22:14:20.000Z")
        assert patch(http, "a", {"metadata": {"k": "v"}}) == 200
        clock.now += 60
        assert http.delete("a").status == 204


def test_retention_counts_from_the_end_of_a_hold(clock: Clock) -> None:
    """An event-based hold that ends begins the retention."""
    policy = {"retentionPolicy": {"retentionPeriod": 60}, "defaultEventBasedHold": True}
    with bucket(clock, policy) as http:
        http.create("a")
        clock.now += 1000
        assert patch(http, "a", {"eventBasedHold": False}) == 200
        assert http.delete("a").reason == "retentionPolicyNotMet"
        clock.now += 60
        assert http.delete("a").status == 204


def test_a_locked_retention_policy_stays(clock: Clock) -> None:
    """Once it is locked it can be made longer, never shorter or go away."""
    with bucket(clock, {"retentionPolicy": {"retentionPeriod": "60"}}) as http:
        path = "/storage/v1/b/bucket"
        assert http.call("POST", path + "/lockRetentionPolicy").reason == "required"
        locked = http.call("POST", path + "/lockRetentionPolicy", ifMetagenerationMatch=1)
        assert locked.json()["retentionPolicy"]["isLocked"] is True
        shorter = {"retentionPolicy": {"retentionPeriod": "59"}}
        assert http.call("PATCH", path, shorter).status == 400
        assert http.call("PATCH", path, {"retentionPolicy": None}).status == 400
        longer = {"retentionPolicy": {"retentionPeriod": "61"}}
        assert http.call("PATCH", path, longer).status == 200


def test_no_versions_where_there_is_retention(clock: Clock) -> None:
    """Whichever comes second is refused and changes nothing; one may take the other's place."""
    path, retention = "/storage/v1/b/bucket", {"retentionPolicy": {"retentionPeriod": "60"}}
    for there, other in ((VERSIONING, retention), (retention, VERSIONING)):
        with bucket(clock, dict(there)) as http:
            for refused in (
                http.call("PATCH", path, other),
                http.call("PUT", path, {**there, **other}),
            ):
                assert (refused.status, refused.reason) == (400, "invalid")
            found = http.call("GET", path).json()
            assert found["metageneration"] == "1"
            assert not other.keys() & found.keys()
            instead = {**other, **dict.fromkeys(there)}
            assert http.call("PATCH", path, instead).status == 200


@pytest.mark.parametrize("sent", [WEEK, str(WEEK), float(WEEK)])
def test_int64_is_a_string(clock: Clock, sent: object) -> None:
    """However it is sent; so is everything else that may be too large for a JavaScript number."""
    config = {
        "softDeletePolicy": {"retentionDurationSeconds": sent},
        "retentionPolicy": {"retentionPeriod": sent},
    }
    with bucket(clock, config) as http:
        made = http.call("POST", "/storage/v1/b", {"name": "new-one", **config}, project="p")
        patched = http.call("PATCH", "/storage/v1/b/bucket", config)
        replaced = http.call("PUT", "/storage/v1/b/bucket", config)
        found = http.call("GET", "/storage/v1/b/bucket")
        listed = http.call("GET", "/storage/v1/b", project="p").json()["items"]
    for each in [answer.json() for answer in (made, patched, replaced, found)] + listed:
        assert each["softDeletePolicy"]["retentionDurationSeconds"] == str(WEEK)
        assert each["retentionPolicy"]["retentionPeriod"] == str(WEEK)
        assert isinstance(each["projectNumber"], str)
        assert isinstance(each["metageneration"], str)


def test_requester_pays(clock: Clock) -> None:
    """Every call must say who pays, in a parameter or a header."""
    with bucket(clock, {"billing": {"requesterPays": True}}) as http:
        for answer in (http.create("a"), http.call("GET", OBJECTS), http.delete("a")):
            assert (answer.status, answer.reason) == (400, "required")
            error = answer.json()["error"]
            assert "requester pays bucket but no user project provided" in error["message"]
            assert error["errors"][0]["location"] == "userProject"
        assert http.create("a", userProject="payer").status == 200
        headers = {"x-goog-user-project": "payer"}
        assert http.call("GET", OBJECTS, headers=headers).status == 200


# -- the rate limit ------------------------------------------------------------------------------


def test_one_mutation_a_second(clock: Clock) -> None:
    """Create, replace, patch and delete of one object count together; refused ones do not."""
    state = BucketState("bucket", Bucket(now=clock))
    with serving(Service({"bucket": state.table}, rate_limit=True)) as it, Http(it.url) as http:
        assert http.create("a").status == 200
        assert http.create("b").status == 200  # another object
        assert http.delete("a").status == 429
        assert http.create("a").status == 412  # its condition fails all the same
        clock.now += 0.99
        too_fast = http.insert("a")
        assert (too_fast.status, too_fast.reason) == (429, "rateLimitExceeded")
        assert too_fast.json()["error"]["errors"][0]["domain"] == "usageLimits"
        message = too_fast.json()["error"]["message"]
        assert message == RATE_LIMITED.format(bucket="bucket", name="a")
        clock.now += 0.01
        assert http.delete("a").status == 204
        assert http.create("a").status == 429  # deleting counts
        clock.now += 1
        assert http.create("a").status == 200
        assert patch(http, "a", {"metadata": {"k": "v"}}) == 429
        assert http.get("a").status == 200  # reading does not


@pytest.mark.parametrize("verb", ["copyTo/b/bucket/o", "moveTo/o"])
def test_copies_count_for_their_targets(clock: Clock, verb: str) -> None:
    """A copy is a mutation of what it makes; a move of both."""
    state = BucketState("bucket", Bucket(now=clock))
    with serving(Service({"bucket": state.table}, rate_limit=True)) as it, Http(it.url) as http:
        http.create("a")
        http.create("b")
        path = f"{object_path('a')}/{verb}/b"
        assert http.call("POST", path).status == 429
        clock.now += 1
        assert http.call("POST", path).status == 200
        assert http.insert("b").status == 429
        assert http.insert("a").status == (429 if verb.startswith("move") else 200)


def test_a_refused_move_counts_for_neither(clock: Clock) -> None:
    """A move that is too fast for its source is no mutation of its target."""
    table = Bucket(now=clock)
    with serving(Service({"bucket": table}, rate_limit=True)) as it, Http(it.url) as http:
        http.create("a")
        assert http.call("POST", f"{object_path('a')}/moveTo/o/b").status == 429
        assert http.create("b").status == 200


# -- the same with the reference client ----------------------------------------------------------


@pytest.fixture
def target(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    table = Bucket(now=clock)
    service = Service({"bucket": table}, rate_limit=True, now=clock)
    with serving(service) as server, client_of(monkeypatch, server.url) as target:
        yield target


def test_the_client_configures_a_bucket(target: Target) -> None:
    """The reference client makes a bucket, sets what there is to set, and finds it so."""
    made = target.client.create_bucket("second", location="EU")
    assert made.soft_delete_policy.retention_duration_seconds == WEEK
    made.versioning_enabled = True
    made.labels = {"a": "1"}
    made.soft_delete_policy.retention_duration_seconds = 0
    made.patch()

    found = target.client.get_bucket("second")
    assert found.versioning_enabled
    assert (found.labels, found.location) == ({"a": "1"}, "EU")
    assert found.soft_delete_policy.retention_duration_seconds == 0
    permissions = ["storage.objects.get", "storage.objects.list"]
    assert found.test_iam_permissions(permissions) == permissions
    assert [bucket.name for bucket in target.client.list_buckets()] == ["bucket", "second"]
    found.delete()
    assert target.client.lookup_bucket("second") is None


def test_the_client_sees_the_rate_limit(target: Target, clock: Clock) -> None:
    """A second mutation within the second is refused in GCS's words, whatever the verb."""
    blob = target.create(a="1")
    again = target.blob(blob.name)
    with target.refuses(429, blob):
        again.upload_from_string(b"second", retry=None)
    with target.refuses(429, blob):
        again.delete(retry=None)
    with target.refuses(429, blob):
        again.patch(retry=None)
    clock.now += 1
    again.delete(retry=None)


def test_the_client_restores(target: Target, clock: Clock) -> None:
    """What is soft-deleted is found and restored by the reference client."""
    target.bucket.reload()
    target.bucket.soft_delete_policy.retention_duration_seconds = WEEK
    target.bucket.patch()
    blob = target.create(data=b"first")
    clock.now += 1
    blob.delete()
    clock.now += 1
    lost = list(target.client.list_blobs(target.bucket, soft_deleted=True))
    assert [item.name for item in lost] == [blob.name]
    assert lost[0].hard_delete_time - lost[0].soft_delete_time == timedelta(seconds=WEEK)
    restored = target.bucket.restore_blob(blob.name, generation=generation_of(blob))
    assert generation_of(restored) != generation_of(blob)
    assert target.read(blob.name) == b"first"
