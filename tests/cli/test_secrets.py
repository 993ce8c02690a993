"""No command shows what proves that somebody holds a lease or a run, nor does a worker's log."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from durable.cli import main
from durable.cli.parsing import grammar
from durable.store.memory import Bucket
from durable.testing.gcs import Service, serving
from tests.cli.command import FLOWS
from tests.commands import environment

BUCKET = "some-bucket"
HOLDER = Path(__file__).with_name("holding.py")
IT = ("--input", '{"word": "it"}')
QUICK = f"{FLOWS}:quick"
MENDABLE = f"{FLOWS}:mendable"

# Every command in an order in which each finds something to do, with the words that follow it.
CALLS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("run", (QUICK, "--id", "done", *IT)),
    ("run", (MENDABLE, "--id", "failed", *IT)),
    ("run", (MENDABLE, "--id", "failed-too", *IT)),
    ("start", (f"{FLOWS}:approved", "--id", "waits")),
    ("start", (QUICK, "--id", "waits-too", *IT)),
    ("list", ()),
    ("show", ("held",)),
    ("show", ("failed",)),
    ("result", ("done",)),
    ("tail", ("done",)),
    ("send", ("waits", "approval", "--input", '{"limit": 1}')),
    ("workers", ()),
    ("sweep", ()),
    ("schedules create", ("daily", QUICK, "--cron", "0 2 * * *", *IT)),
    ("schedules list", ()),
    ("schedules show", ("daily",)),
    ("schedules pause", ("daily",)),
    ("schedules resume", ("daily",)),
    ("schedules trigger", ("daily",)),
    ("schedules backfill", ("daily", "2026-11-01", "2026-11-02")),
    ("schedules remove", ("daily",)),
    ("queues list", ()),
    ("queues pause", ("default",)),
    ("queues resume", ("default",)),
    ("leases list", ()),
    ("replay", ("failed", "--target", MENDABLE)),
    ("export", ("held", "-")),
    ("export", ("done", "done.json")),
    ("doctor", ()),
    ("doctor", ("--runs",)),
    ("init", ()),
    ("lint", (FLOWS,)),
    ("fork", ("failed", "--from", "mend.1", "--id", "forked")),
    ("skip", ("failed-too", "mend.1", "--with", '"skipped"')),
    ("retry", ("failed", "--yes")),
    ("restart", ("done", "--yes")),
    ("cancel", ("waits-too",)),
    ("purge", ("done", "--yes", "--force")),
    ("import", ("done.json",)),
    ("gc", ("--older-than", "30d", "--yes")),
    ("worker", (FLOWS, "--until-idle", "--queues", "another")),
    ("release", ("held", "--force")),
    ("leases release", ("lease:job", "--force")),
)
FAILING = {("run", MENDABLE), ("lint", FLOWS)}  # the run fails, and findings are a failure
ELSEWHERE = {"demo"}  # its store is one of its own, and it takes seconds: tests/cli/test_demo.py


def test_every_command_is_called() -> None:
    """A new one is missed here until it is among the calls above."""
    assert {name for name, _ in CALLS} | ELSEWHERE == set(_commands(grammar()))


def _commands(parser: argparse.ArgumentParser, named: str = "") -> Iterator[str]:
    """What can be asked for: `list`, `leases release`."""
    verbs: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, below in action.choices.items():
                verbs += _commands(below, f"{named} {verb}".strip())
        elif action.dest == "verb" and action.choices is not None:
            verbs += [f"{named} {verb}" for verb in action.choices]
    yield from verbs or [named]


class Behind:
    """A bucket's clock, so that what is held is old enough to be written again at once."""

    def __init__(self) -> None:
        self.seconds = 5.0

    def now(self) -> float:
        return time.time() - self.seconds


@pytest.fixture
def behind() -> Behind:
    return Behind()


@pytest.fixture(params=["sqlite", "gs"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: Behind
) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/db"
        return
    with serving(Service({BUCKET: Bucket(now=behind.now)})) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield f"gs://{BUCKET}/secrets"


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_command_shows_a_secret(
    url: str,
    form: str,
    behind: Behind,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Holder tokens of a user's lease, of a worker and of its run, while they are held."""
    monkeypatch.setenv("DURABLE_STORE", url)
    shown: dict[str, str] = {}
    codes: dict[str, int] = {}
    with _holding(tmp_path) as holder:
        secrets = _secrets_of(holder)
        behind.seconds = 0.0
        for name, words in CALLS:
            called = f"durable {name} {' '.join(words)}"
            flag = ["--json"] if form == "json" else []
            codes[called] = main([*name.split(), *words, *flag])
            shown[called] = "\n".join(capfd.readouterr())
        _, shown["the worker's log"] = holder.communicate()
    shown["done.json"] = (tmp_path / "done.json").read_text()

    assert not [
        (where, secret) for where, text in shown.items() for secret in secrets if secret in text
    ]
    # The search is not in vain: each had something to show, what is held was held meanwhile.
    assert {called for called, code in codes.items() if code} == {
        f"durable {name} {' '.join(words)}"
        for name, words in CALLS
        if (name, *words[:1]) in FAILING
    }
    assert "job" in shown["durable leases list "]
    assert "the only" in shown["durable leases list "]
    assert "DEBUG" in shown["the worker's log"]


@contextmanager
def _holding(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(HOLDER)],
        cwd=folder, env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as holder:  # fmt: skip
        try:
            yield holder
        finally:
            holder.kill()


def _secrets_of(holder: subprocess.Popen[str]) -> set[str]:
    assert holder.stdout is not None
    line = holder.stdout.readline()
    assert line, holder.communicate()
    told: Any = json.loads(line)
    secrets = {told["lease"], *told["owners"]}
    assert len(secrets) >= 2  # the lease's, and at least one owner's: of the worker and its run
    return secrets
