"""The servers that the conformance tests run against, and what each is known to get wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from google.cloud import storage

from durable.store.memory import Bucket
from durable.testing.gcs import Service, serving
from tests.gcs_server.fake import fake_gcs_server
from tests.gcs_server.gaps import FAKE_GCS_SERVER_GAPS
from tests.gcs_server.targets import Target

FAKE = "fake-gcs-server"


@pytest.fixture(
    scope="session",
    params=[
        "durable",
        pytest.param(FAKE, marks=pytest.mark.requires("fake-gcs-server")),
        pytest.param("real", marks=[pytest.mark.requires("gcs-bucket"), pytest.mark.timeout(300)]),
    ],
)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A bucket behind the reference client, on each server in turn."""
    open_target = {"durable": _durable, FAKE: _fake, "real": _real}[request.param]
    with pytest.MonkeyPatch.context() as environment, open_target(environment) as opened:
        # Else a thread asks for the bucket's metadata behind the test's back.
        environment.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        yield opened


@contextmanager
def _durable(environment: pytest.MonkeyPatch) -> Iterator[Target]:
    with serving(Service({"bucket": Bucket()})) as server, client_of(environment, server.url) as it:
        yield it


@contextmanager
def _fake(environment: pytest.MonkeyPatch) -> Iterator[Target]:
    with fake_gcs_server() as url, client_of(environment, url, exact=False) as it:
        it.client.create_bucket("bucket")
        yield it


@contextmanager
def _real(_environment: pytest.MonkeyPatch) -> Iterator[Target]:
    with closing(storage.Client()) as client:
        target = Target(client, os.environ["GCS_TEST_BUCKET"])
        try:
            yield target
        finally:
            for blob in client.list_blobs(target.bucket, prefix=target.root):
                blob.delete()


@contextmanager
def client_of(environment: pytest.MonkeyPatch, url: str, *, exact: bool = True) -> Iterator[Target]:
    """The bucket named `bucket` at a URL."""
    environment.setenv("STORAGE_EMULATOR_HOST", url)
    with closing(storage.Client(project="project")) as client:
        yield Target(client, "bucket", exact=exact)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Known gaps of fake-gcs-server are expected to fail; one that is closed is noticed."""
    for item in items:
        if FAKE not in item.name:
            continue
        which = item.name.replace(f"{FAKE}-", "")
        test = which.split("[")[0]
        reason = FAKE_GCS_SERVER_GAPS.get(which, FAKE_GCS_SERVER_GAPS.get(test))
        if reason is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason))
