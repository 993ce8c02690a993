"""`durable init`: buckets made and set up, on a strict server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from durable.doctor import buckets
from durable.store.memory import Bucket
from durable.testing.gcs import BucketState, Fault, Handle, Service, serving
from durable.testing.gcs.refusals import Refusal
from durable.testing.gcs.routes import Route
from durable.testing.gcs.wire import Request, Response
from tests.doctor.conftest import Cli

URL = "gs://some-bucket/shop"


@pytest.fixture
def config(server: Handle, cli: Cli) -> Any:
    """Makes the bucket with a configuration of the test's own on top; gives what it becomes."""
    cli("init", URL)
    state = server.service.bucket("some-bucket")

    def configure(**config: Any) -> Any:
        state.configure(config, state.updated)
        return state

    return configure


def test_it_makes_a_bucket_that_passes(cli: Cli, server: Handle) -> None:
    """Uniform access, no soft delete, where it was asked for; then the doctor finds nothing."""
    done = cli("init", URL, "--location", "EUROPE-WEST1", "--project", "p-1")

    config = server.service.bucket("some-bucket").config
    assert done.code == 0
    assert done.out.startswith("gs://some-bucket was created\n")
    assert done.out.endswith("doctor: ok\n")
    assert "warning" not in done.out
    assert config["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"] is True
    assert config["softDeletePolicy"]["retentionDurationSeconds"] == "0"
    assert config["location"] == "EUROPE-WEST1"


def test_its_own_bucket_is_no_conflict(cli: Cli, server: Handle) -> None:
    """When the answer to the creation is lost, the repetition finds the bucket and goes on."""
    server.service.faults.add(Fault("reply_lost", "buckets.insert", nth=1))

    done = cli("init", URL)

    inserts = [call for call in server.service.calls.log if call.verb == "buckets.insert"]
    assert [call.status for call in inserts] == [200, 409]
    assert done.code == 0
    assert done.out.endswith("doctor: ok\n")


def test_a_second_time_changes_nothing(cli: Cli, server: Handle) -> None:
    """It says so, and passes again."""
    cli("init", URL)
    before = server.service.bucket("some-bucket").metageneration

    done = cli("init", URL)

    assert done.code == 0
    assert done.out.startswith("gs://some-bucket needed no change\n")
    assert server.service.bucket("some-bucket").metageneration == before


def test_it_sets_up_a_bucket_that_is_there(cli: Cli, config: Any) -> None:
    """Whatever stands in the way is changed and named, the rest stays; then it passes."""
    state = config(
        softDeletePolicy={"retentionDurationSeconds": "604800"},
        retentionPolicy={"retentionPeriod": "3600"},
        defaultEventBasedHold=True,
        labels={"team": "shop"},
    )

    done = cli("init", URL, "--json")

    assert done.code == 0
    assert done.document["ok"] is True
    assert done.document["created"] is False
    assert done.document["changes"] == [
        "uniform bucket-level access: on",
        "soft delete: off (was 604,800 s)",
        "retention policy: none (was 3,600 s)",
        "default event-based hold: off",
    ]
    assert {one["level"] for one in done.document["findings"]} == {"ok"}
    assert state.config["labels"] == {"team": "shop"}
    assert state.rules.retention_policy is None


def test_each_change_is_printed(cli: Cli, config: Any) -> None:
    """A line for each thing that is not as it was."""
    config(
        versioning={"enabled": True},
        iamConfiguration={"uniformBucketLevelAccess": {"enabled": True}},
    )

    done = cli("init", URL)

    assert done.out.startswith("gs://some-bucket was changed: versioning: off\n\n")


def test_a_locked_retention_policy_is_left_alone(cli: Cli, config: Any) -> None:
    """Nothing of that bucket is changed, not even what could be, and nothing is written."""
    state = config(
        retentionPolicy={"retentionPeriod": "3600", "isLocked": True},
        versioning={"enabled": False},
    )
    before = state.metageneration

    done = cli("init", URL)

    assert (done.code, done.out) == (5, "")
    assert "has a locked retention policy of 3,600 s and was left as it is" in done.err
    assert "hint: Use another bucket: durable init gs://ANOTHER-BUCKET" in done.err
    assert state.metageneration == before
    assert state.table.list("", None).items == []


class ChangesMeanwhile(Service):
    """Somebody else changes the bucket just before each of our changes arrives."""

    def handle(self, request: Request, found: Route) -> Response:
        if found.verb == "buckets.patch":
            state = self.bucket(found.bucket)
            state.configure({**state.config, "labels": {"changed": "meanwhile"}}, state.updated)
        return super().handle(request, found)


def test_a_bucket_that_changes_meanwhile_is_left_alone(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was decided on old settings is not applied to new ones."""
    state = BucketState("some-bucket", Bucket(), {"versioning": {"enabled": True}})
    with serving(ChangesMeanwhile({"some-bucket": state})) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        done = cli("init", URL)

    assert (done.code, done.out) == (5, "")
    assert "run the command again" in done.err
    assert state.rules.versioning.enabled


def test_a_bucket_cannot_be_moved(cli: Cli, config: Any) -> None:
    """Another location is refused before anything is changed."""
    state = config(location="US", versioning={"enabled": True})

    done = cli("init", URL, "--location", "eu")

    assert (done.code, done.out) == (2, "")
    assert "is in US and cannot be moved to eu" in done.err
    assert state.rules.versioning.enabled


@pytest.mark.parametrize("permission", ["storage.buckets.get", "storage.buckets.update"])
def test_what_may_not_be_done_is_said(cli: Cli, config: Any, permission: str) -> None:
    """One line with the missing permission, one with the role; exit code 5."""
    state = config(versioning={"enabled": True})
    state.denied.add(permission)

    done = cli("init", URL)

    assert (done.code, done.out) == (5, "")
    assert permission in done.err.splitlines()[0]
    assert done.err.splitlines()[1].endswith("--role=roles/storage.admin")
    assert state.rules.versioning.enabled


def test_without_credentials_it_says_how_to_sign_in(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent, and the exit code is 5."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "missing.json")

    done = cli("init", URL)

    assert (done.code, done.out) == (5, "")
    assert "missing.json" in done.err
    assert "hint: Run `gcloud auth application-default login`" in done.err


def test_an_unreachable_host_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with what failed, one with what to check; exit code 5."""
    with serving(Service()) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setattr(buckets, "CALL_SECONDS", 0.1)

    done = cli("init", URL)

    assert (done.code, done.out) == (5, "")
    assert done.err.startswith(
        "error: Google Cloud Storage did not answer about the bucket 'some-bucket': "
    )
    assert "network, proxy, STORAGE_EMULATOR_HOST" in done.err.splitlines()[1]


def test_a_bad_location_is_said(cli: Cli, server: Handle) -> None:
    """What Google says of it is passed on, with the options to look at."""
    server.service.faults.add(Fault("refused", "buckets.insert", status=400))

    done = cli("init", URL, "--location", "nowhere")

    assert (done.code, done.out) == (5, "")
    assert done.err == (
        "error: the bucket 'some-bucket' answered the set-up with 400: Bad Request\n"
        "hint: Name the project of a new bucket (--project), and a location that exists.\n"
    )


@pytest.mark.parametrize("command", ["init", "doctor"])
def test_a_bucket_whose_requester_pays(cli: Cli, config: Any, command: str) -> None:
    """Both ask for the project that pays, as `run` does; with it they go on."""
    config(billing={"requesterPays": True})
    advice = "Name the project that pays: gs://some-bucket/shop?userProject=PROJECT"

    done = cli(command, URL)

    assert done.code == 5
    assert advice in (done.err if command == "init" else done.out)
    assert cli(command, f"{URL}?userProject=p").code == 0


class Unpaid(Service):
    """Answers whatever is asked as Google does to a project that cannot pay."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__()
        self._refusal = refusal

    def handle(self, request: Request, found: Route) -> Response:
        return self._refusal.response()


@pytest.mark.parametrize("command", ["init", "doctor"])
@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        (
            Refusal(400, "invalid", "User project specified in the request is invalid."),
            f"The project 'nope' is none that can pay; name another: {URL}?userProject=PROJECT",
        ),
        (
            Refusal(403, "forbidden", "no serviceusage.services.use access to the project."),
            (
                "Allow this account to have that project pay: gcloud projects "
                "add-iam-policy-binding nope --member=ACCOUNT "
                "--role=roles/serviceusage.serviceUsageConsumer"
            ),
        ),
        (
            Refusal(418, "teapot", "I am a teapot."),
            (
                "What Google means by 418: "
                "https://cloud.google.com/storage/docs/json_api/v1/status-codes"
            ),
        ),
    ],
    ids=["unknown", "not-allowed", "anything"],
)
def test_a_project_that_cannot_pay(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str, refusal: Refusal, advice: str
) -> None:
    """The project is what is to be changed; nobody is sent to the command they have just run."""
    with serving(Unpaid(refusal)) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        done = cli(command, f"{URL}?userProject=nope")

    assert done.code == 5
    said = done.err if command == "init" else done.out
    assert said.count(refusal.message) == said.count(advice) == 1
    assert "durable doctor" not in said


def test_it_makes_a_file_too(cli: Cli, tmp_path: Path) -> None:
    """A SQLite store is a file with its tables, which passes."""
    done = cli("init", "sqlite:///shop/a.db", "--json")

    assert done.code == 0
    assert (done.document["ok"], done.document["store"]) == (True, "sqlite:///shop/a.db")
    assert (done.document["created"], done.document["changes"]) == (True, [])
    assert (tmp_path / "shop" / "a.db").is_file()
    assert cli("init", "sqlite:///shop/a.db", "--json").document["created"] is False
