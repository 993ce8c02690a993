"""The verbs of day two on each kind of store, from a failure to an empty store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from durable.cli import main
from durable.store.memory import Bucket
from durable.testing.gcs import Service, serving
from tests.cli.command import FLOWS, Done

BUCKET = "some-bucket"
INPUT = '{"word": "it"}'
MENDABLE = f"{FLOWS}:mendable"

Cli = Callable[..., Done]

_folders = itertools.count()


@pytest.fixture(params=["sqlite", "gs"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "sqlite":
        yield "sqlite:///day-two.db"
        return
    with serving(Service({BUCKET: Bucket()})) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield f"gs://{BUCKET}/day-two-{next(_folders)}"


@pytest.fixture
def cli(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DURABLE_STORE", url)

    def call(*words: str) -> Done:
        capsys.readouterr()
        code = main(words)
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return call


def status(cli: Cli, run: str) -> Any:
    return cli("show", run, "--json").document["status"]


def test_from_a_failure_to_an_empty_store(cli: Cli, tmp_path: Path) -> None:
    """Exported, replayed, mended, retried in bulk, forked, skipped, restarted, purged."""
    for run in ("a", "b", "c"):
        assert cli("run", MENDABLE, "--id", run, "--input", INPUT).code == 1
    assert cli("export", "a", "a.json").code == 0
    assert cli("replay", "a.json", "--target", FLOWS).code == 0
    assert cli("replay", "--all", "--status", "failed", "--target", FLOWS).code == 0
    assert cli("skip", "c", "mend.1", "--with", '"by hand"', "--reason", "no part").code == 0
    (tmp_path / "mended").touch()

    assert cli("retry", "--workflow", "mendable", "--failed", "--yes").code == 0
    assert cli("worker", FLOWS, "--until-idle").code == 0

    assert [cli("result", run).out for run in "abc"] == [
        '["first","it works","last"]\n', '["first","it works","last"]\n',
        '["first","by hand","last"]\n',
    ]  # fmt: skip
    assert cli("fork", "a", "--from", "mend", "--id", "d").out == "d\n"
    assert cli("restart", "b").code == 0
    assert cli("release", "b").out == "b: nobody holds it\n"
    assert cli("worker", FLOWS, "--until-idle").code == 0
    assert [status(cli, run) for run in "abcd"] == ["completed"] * 4

    assert cli("purge", "a").code == 0
    assert cli("import", "a.json").out == "a\n"
    assert status(cli, "a") == "failed"  # as it was when it was exported
    assert cli("doctor").code == 0
    assert cli("gc", "--older-than", "0s", "--json").document["runs"] == 4
    assert cli("list").out == "no runs\n"
