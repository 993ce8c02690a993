"""What the commands print, and how they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from durable.doctor import Finding
from durable.testing.gcs import Handle
from tests.doctor.conftest import Cli
from tests.doctor.test_stores import TRIED


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
    done = cli("doctor", "--json")

    assert done.document["store"] == "sqlite:///.durable/durable.db"
    assert (tmp_path / ".durable" / "durable.db").is_file()


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
    done = cli("doctor", "--repair", "--json")

    assert done.code == 0
    (runs,) = [one for one in done.document["findings"] if one["check"] == "runs"]
    assert runs["found"] == "0 runs; hints and facts agree"


def test_doctor_of_a_bucket_tells_roles_and_costs(cli: Cli, server: Handle) -> None:
    """Who the account can be, and the estimated bill of a month."""
    cli("init", "gs://durable-roles/here")

    found = cli("doctor", "gs://durable-roles/here", "--json").document["findings"]
    checks = {one["check"] for one in found}

    assert {"roles", "cost", "unserved"} <= checks
