"""Examining buckets: each setting and each permission, on a strict server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from durable.store import REMOTE_PACE
from durable.store.gcs import GcsBackend, Place
from durable.store.memory import Bucket
from durable.testing.gcs import BucketState, Handle, Service, serving
from tests.doctor.examined import examined, examined_bucket, finding, levels

WEEK = {"retentionDurationSeconds": str(7 * 86_400)}


@contextmanager
def bucket_with(config: dict[str, Any], **options: Any) -> Iterator[Handle]:
    state = BucketState("some-bucket", Bucket(), config)
    with serving(Service({"some-bucket": state}, **options)) as server:
        yield server


def names(server: Handle) -> list[str]:
    """What is in the bucket."""
    return [item.name for item in server.service.bucket("some-bucket").table.list("", None).items]


def written(server: Handle) -> int:
    return server.service.calls.by_verb().get("insert", 0)


def test_a_good_bucket_passes() -> None:
    """Settings, operations, races and figures are all ok, and nothing is left."""
    with bucket_with({}) as server:
        report = examined_bucket(server.url)

        assert set(levels(report).values()) == {"ok"}
        assert "compare-and-swap" in levels(report)
        assert "soft-delete" in levels(report)
        assert names(server) == []
        assert written(server) > 16


@pytest.mark.parametrize(
    ("config", "check", "fix"),
    [
        ({"retentionPolicy": {"retentionPeriod": "3600"}}, "retention", "--clear-retention"),
        (
            {"retentionPolicy": {"retentionPeriod": "3600", "isLocked": True}},
            "retention",
            "durable init gs://ANOTHER-BUCKET",
        ),
        ({"defaultEventBasedHold": True}, "hold", "--no-default-event-based-hold"),
    ],
)
def test_a_bucket_that_keeps_objects_is_refused(
    config: dict[str, Any], check: str, fix: str
) -> None:
    """It is refused by its settings alone: not one object is written that would stay."""
    with bucket_with(config) as server:
        report = examined_bucket(server.url)

        assert [one.check for one in report.refused] == [check]
        assert fix in finding(report, check).fix
        assert written(server) == 0


@pytest.mark.parametrize(
    ("config", "check"),
    [
        ({"versioning": {"enabled": True}}, "versioning"),
        ({"softDeletePolicy": WEEK}, "soft-delete"),
        ({"hierarchicalNamespace": {"enabled": True}}, "namespace"),
    ],
)
def test_what_only_costs_is_a_warning(config: dict[str, Any], check: str) -> None:
    """The rest is tried, and the bucket can be used."""
    with bucket_with(config) as server:
        report = examined_bucket(server.url)

    assert report.refused == []
    assert [one.check for one in report.findings if one.level != "ok"] == [check]
    assert finding(report, check).level == "warning"
    assert finding(report, "create-only").level == "ok"


def test_requester_pays_without_a_payer_is_refused() -> None:
    """The finding shows the URL that names the project."""
    with bucket_with({"billing": {"requesterPays": True}}) as server:
        report = examined_bucket(server.url)

    assert levels(report) == {"reach": "refused"}
    assert "gs://some-bucket/shop?userProject=PROJECT" in finding(report, "reach").fix


def test_requester_pays_with_a_payer_is_a_note() -> None:
    """Every call of the examination names the project, also those about the settings."""
    with bucket_with({"billing": {"requesterPays": True}}) as server:
        report = examined_bucket(server.url, payer="payer-1")

    assert report.refused == []
    assert finding(report, "requester-pays").level == "note"
    assert "'payer-1' pays" in finding(report, "requester-pays").found


@pytest.mark.parametrize(
    ("permission", "refused"),
    [
        ("create", ["create", "replace"]),
        ("get", ["read"]),
        ("list", ["list"]),
        ("delete", ["replace", "delete"]),
    ],
)
def test_a_missing_permission_is_named(permission: str, refused: list[str]) -> None:
    """Each operation that needs it says so, with the role that has it and the command."""
    with bucket_with({}) as server:
        server.service.bucket("some-bucket").denied.add(f"storage.objects.{permission}")
        report = examined_bucket(server.url)

        left = names(server)
    assert finding(report, "reach").level == "ok"
    assert [one.check for one in report.refused] == refused
    for one in report.refused:
        assert f"lacks storage.objects.{permission}, which roles/storage.objectUser has" in (
            one.found
        )
        assert "add-iam-policy-binding gs://some-bucket --member=ACCOUNT" in one.fix
    assert len(left) == (1 if permission == "delete" else 0)
    assert finding(report, "clean-up").level == ("warning" if left else "ok")


def test_settings_that_cannot_be_seen_are_a_warning() -> None:
    """The rest is tried all the same, and the role to ask for is named."""
    with bucket_with({}) as server:
        server.service.bucket("some-bucket").denied.add("storage.buckets.get")
        report = examined_bucket(server.url)

    assert report.refused == []
    assert finding(report, "settings").level == "warning"
    assert "storage.buckets.get" in finding(report, "settings").found
    assert finding(report, "settings").fix.endswith("--role=roles/storage.legacyBucketReader")


def test_a_retention_that_cannot_be_seen_is_still_found() -> None:
    """Replacing and deleting are refused with Google's reason; it does not try for ever."""
    with bucket_with({"retentionPolicy": {"retentionPeriod": "3600"}}) as server:
        server.service.bucket("some-bucket").denied.add("storage.buckets.get")
        report = examined_bucket(server.url)

        assert len(names(server)) == 1
    assert [one.check for one in report.refused] == ["replace", "delete"]
    assert "retention policy" in finding(report, "replace").found
    assert "--clear-retention-period" in finding(report, "replace").fix
    assert finding(report, "clean-up").level == "warning"


def test_a_missing_bucket_is_refused() -> None:
    """The fix is the command that makes it."""
    with serving(Service()) as server:
        report = examined_bucket(server.url)

    assert levels(report) == {"reach": "refused"}
    assert "there is no bucket 'some-bucket'" in finding(report, "reach").found
    assert "durable init gs://some-bucket" in finding(report, "reach").fix


def test_credentials_that_are_not_accepted_are_refused() -> None:
    """A 401 says how to sign in."""
    with bucket_with({}, tokens={"another"}) as server:
        report = examined_bucket(server.url)

    assert levels(report) == {"reach": "refused"}
    assert "gcloud auth application-default login" in finding(report, "reach").fix


def test_no_credentials_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent when there is no key, and the finding says how to get one."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "missing.json")
    place = Place("some-bucket")

    report = examined(GcsBackend(place), place=place)

    assert levels(report) == {"reach": "refused"}
    assert "missing.json" in finding(report, "reach").found
    assert "gcloud auth application-default login" in finding(report, "reach").fix


def test_an_unreachable_host_is_refused() -> None:
    """The host is named, and what to check."""
    with serving(Service()) as server:
        url = server.url
    report = examined_bucket(url, patience=0.0)

    assert levels(report) == {"reach": "refused"}
    assert url in finding(report, "reach").found
    assert "network, proxy" in finding(report, "reach").fix


def test_the_limit_of_one_change_a_second_is_no_fault() -> None:
    """A bucket that answers 429 as Google does passes; the calls are repeated."""
    with serving(Service({"some-bucket": Bucket()}, rate_limit=0.02)) as server:
        place = Place("some-bucket", "shop/", "", server.url, anonymous=True)
        backend = GcsBackend(place)
        backend.pace = replace(REMOTE_PACE, write=0.02)
        report = examined(backend, place=place)

        assert report.refused == []
        assert finding(report, "compare-and-swap").level == "ok"
        assert any(call.status == 429 for call in server.service.calls.log)
        assert names(server) == []


@pytest.mark.requires("gcs-bucket")
def test_a_bucket_at_google_can_be_used() -> None:
    """The bucket that other tests run on is not refused, and nothing is left in it."""
    place = Place(os.environ["GCS_TEST_BUCKET"], "durable-doctor/")

    report = examined(GcsBackend(place), place=place)

    assert report.refused == []
    assert finding(report, "clean-up").level == "ok"
