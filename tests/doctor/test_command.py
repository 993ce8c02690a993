"""What the commands print, and how they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from durable.doctor import Finding
from durable.testing.gcs import Handle
from tests.cli.command import FLOWS
from tests.doctor.conftest import Cli
from tests.doctor.test_stores import TRIED

INPUT = '{"word":"hi"}'


def test_doctor_prints_a_table(cli: Cli) -> None:
    """One line for each finding, the verdict at the end, exit code 0."""
    done = cli("doctor", "memory:printed")

    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0].split() == ["RESULT", "CHECK", "FOUND"]
    assert [line.split()[:2] for line in lines[1 : len(TRIED) + 1]] == [["ok", t] for t in TRIED]
    assert lines[-1] == "doctor: ok"
    assert "to do:" not in lines


def test_doctor_prints_one_document(cli: Cli) -> None:
    """Findings, figures and the verdict, for programs."""
    done = cli("doctor", "--json", "--store", "memory:document")

    assert done.code == 0
    assert done.document.keys() == {"store", "ok", "findings", "latency", "clock_offset"}
    assert (done.document["store"], done.document["ok"]) == ("memory:document", True)
    assert [one["check"] for one in done.document["findings"]] == [*TRIED, "unserved"]
    assert all(one.keys() == set(Finding.__struct_fields__) for one in done.document["findings"])
    assert done.document["latency"]["create"].keys() == {"p50_ms", "p99_ms"}


def test_doctor_tries_the_default_store(cli: Cli, tmp_path: Path) -> None:
    """Without a URL it is the store that every other command uses."""
    cli("init")
    done = cli("doctor", "--json")

    assert done.code == 0
    assert done.document["store"] == "sqlite:///.durable/durable.db"
    assert (tmp_path / ".durable" / "durable.db").is_file()


def test_doctor_makes_no_store(cli: Cli, tmp_path: Path) -> None:
    """A mistyped path is refused as a bucket is that is not there."""
    done = cli("doctor", "sqlite:///typo/shop.db")

    assert done.code == 5
    assert f"there is no store {tmp_path}/typo/shop.db" in done.out
    assert done.out.splitlines()[-1] == "doctor: refused for reach"
    assert list(tmp_path.iterdir()) == []


def test_doctor_reports_a_file_that_is_no_store(cli: Cli, tmp_path: Path) -> None:
    """It is a finding, as everything that keeps a store from being used."""
    (tmp_path / "notes.db").write_text("no database, but long enough to be taken for one" * 40)

    done = cli("doctor", "sqlite:///notes.db", "--json")

    assert done.code == 5
    finding = done.document["findings"][0]
    assert (finding["check"], finding["level"]) == ("reach", "refused")
    assert "is damaged or is no database" in finding["found"]


def test_a_refused_store_ends_with_5(cli: Cli, server: Handle) -> None:
    """The verdict names what it is refused for, and what to do stands above it."""
    cli("init", "gs://some-bucket")
    state = server.service.bucket("some-bucket")
    state.configure({"retentionPolicy": {"retentionPeriod": "60"}}, state.updated)

    done = cli("doctor", "gs://some-bucket")
    document = cli("doctor", "gs://some-bucket", "--json")

    assert done.code == document.code == 5
    assert done.out.splitlines()[-1] == "doctor: refused for retention"
    assert "to do:\n  retention: gcloud storage buckets update gs://some-bucket" in done.out
    assert document.document["ok"] is False


def test_a_missing_bucket_ends_with_5(cli: Cli, server: Handle) -> None:
    """One finding, one thing to do."""
    done = cli("doctor", "gs://some-bucket")

    assert done.code == 5
    assert done.out.splitlines()[-1] == "doctor: refused for reach"
    assert "  reach: Check the name, or make the bucket: durable init gs://some-bucket" in done.out


@pytest.mark.parametrize(
    "words",
    [
        ("doctor", "nonsense"),
        ("doctor", "memory:a", "--store", "memory:b"),
        ("init", "memory:a", "--location", "EU"),
    ],
)
def test_bad_input_ends_with_2(words: tuple[str, ...], cli: Cli) -> None:
    """An error, not a report."""
    done = cli(*words)

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


def test_nothing_of_google_is_needed_elsewhere(tmp_path: Path) -> None:
    """A store that is no bucket is tried without loading Google's client."""
    program = """if True:
        import sys
        from durable.cli import main
        assert main(["doctor", "memory:"]) == 0
        print(sorted({"aiohttp", "google.auth", "google.cloud.storage"} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_doctor_repairs_runs(cli: Cli) -> None:
    """With --runs the facts are walked; with --repair what is wrong is put right."""
    cli("init")
    done = cli("doctor", "--repair", "--json")

    assert done.code == 0
    (runs,) = [one for one in done.document["findings"] if one["check"] == "runs"]
    assert runs["found"] == "0 runs; hints and facts agree"


@pytest.mark.parametrize(
    ("denied", "can", "lacks"),
    [
        ({"create", "delete"}, "a viewer", "a worker (executes) lacks create, delete and replace"),
        ({"list"}, "a submitter", "a viewer (lists and shows) lacks list"),
        ({"delete"}, "a viewer", "a submitter (starts, sends, cancels) lacks delete and replace"),
        (set(), "a viewer, a submitter, a worker and an operator", "`durable init` needs"),
    ],
)
def test_doctor_tells_an_account_who_it_can_be(
    cli: Cli, server: Handle, denied: set[str], can: str, lacks: str
) -> None:
    """By what it is really allowed, with the least role of those that it cannot be."""
    cli("init", "gs://durable-roles")
    server.service.bucket("durable-roles").denied.update(f"storage.objects.{d}" for d in denied)

    done = cli("doctor", "gs://durable-roles", "--json").document["findings"]

    (roles,) = [one for one in done if one["check"] == "roles"]
    assert f"this account can be {can};" in roles["found"]
    assert lacks in roles["found"]
    assert "roles/storage." in roles["found"]


@pytest.mark.parametrize("bucket", ["absent", "kept"])
def test_roles_are_told_of_what_was_tried_alone(cli: Cli, server: Handle, bucket: str) -> None:
    """Of a bucket that is not there, or keeps its objects, nothing is known about rights."""
    if bucket == "kept":
        cli("init", "gs://kept")
        state = server.service.bucket("kept")
        state.configure({"retentionPolicy": {"retentionPeriod": "60"}}, state.updated)

    found = cli("doctor", f"gs://{bucket}", "--json").document["findings"]

    assert "roles" not in {one["check"] for one in found}


VIEWER = ("list", "show done", "show waits", "workers", "leases", "queues", "schedules",
          "result done", "tail done", "export done -", f"replay done --target {FLOWS}")  # fmt: skip
SUBMITTER = (f"start {FLOWS}:quick --id new --input {INPUT}", "send waits go", "cancel waits",
             "result done")  # fmt: skip


@pytest.mark.parametrize(
    ("words", "denied"), [(VIEWER, {"create", "delete"}), (SUBMITTER, {"list"})]
)
def test_the_rights_of_a_persona_are_enough(
    cli: Cli, server: Handle, words: tuple[str, ...], denied: set[str]
) -> None:
    """What it does succeeds with those rights and no others."""
    store = ("--store", "gs://durable-roles")
    cli("init", "gs://durable-roles")
    for verb, run in (("run", "done"), ("start", "waits")):
        assert cli(verb, f"{FLOWS}:quick", "--id", run, "--input", INPUT, *store).code == 0
    bucket = server.service.bucket("durable-roles")
    bucket.denied.update({f"storage.objects.{d}" for d in denied} | {"storage.buckets.get"})

    for line in words:
        done = cli(*line.split(" "), *store)
        assert (done.code, done.err) == (0, ""), line


def test_doctor_of_a_bucket_tells_roles_and_costs(cli: Cli, server: Handle) -> None:
    """Who the account can be, and the estimated bill of a month."""
    cli("init", "gs://durable-roles/here")

    found = cli("doctor", "gs://durable-roles/here", "--json").document["findings"]
    checks = {one["check"] for one in found}

    assert {"roles", "cost", "unserved"} <= checks
