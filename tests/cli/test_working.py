"""`worker` as a process: it executes, drains, and never keeps a machine from stopping it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.command import FLOWS, Done, begin, durable, until

Cli = Callable[..., Done]

QUICK = f"{FLOWS}:quick"
THREE = f"{FLOWS}:three"
INPUT = '{"word": "hi"}'


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are killed at the end, whatever the test did."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate(timeout=20)


def test_until_idle_it_executes_everything_and_ends(cli: Cli, folder: Path) -> None:
    """Runs that wait are executed; what steps print is on standard output, logs are not."""
    for run in ("a", "b"):
        cli("start", QUICK, "--id", run, "--input", INPUT)
    done = durable("worker", FLOWS, "--until-idle", "--code-version", "v1", folder=folder)
    runs = cli("list", "--json").document["runs"]

    assert (done.code, done.out) == (0, "note hi\n" * 2)
    assert {r["run"]: r["status"] for r in runs} == {"a": "completed", "b": "completed"}
    assert "serves" in done.err


def test_targets_may_stand_in_the_project_file(cli: Cli, folder: Path) -> None:
    """Without a TARGET the worker serves `targets` of [tool.durable], meant from its folder."""
    cli("start", QUICK, "--id", "x", "--input", INPUT)
    link = folder / "linked.py"
    link.write_text(Path(FLOWS).read_text())
    project = (
        "[tool.durable]\n"
        f'targets = ["linked.py:quick"]\nstore = "sqlite:///{folder}/.durable/durable.db"\n'
    )
    (folder / "pyproject.toml").write_text(project)
    below = folder / "below"
    below.mkdir()

    assert durable("worker", "--until-idle", folder=below).code == 0
    assert cli("result", "x").out == '{"said":"hi"}\n'


def test_it_leaves_what_it_does_not_serve(cli: Cli, folder: Path) -> None:
    """A named workflow is all that it takes."""
    cli("start", QUICK, "--id", "x", "--input", INPUT)

    assert durable("worker", THREE, "--until-idle", folder=folder).code == 0
    assert cli("show", "x", "--json").document["status"] == "waiting"


def test_sigterm_drains(cli: Cli, folder: Path, started: list[subprocess.Popen[str]]) -> None:
    """After the grace the run is handed over as it stands; exit code 0; the next goes on."""
    cli("start", THREE, "--id", "x", "--input", INPUT)
    worker = begin("worker", FLOWS, "--grace", "100ms", folder=folder)
    started.append(worker)
    until(worker, "gate go")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=20)
    shown = cli("show", "x", "--json").document
    (folder / "go").touch()
    durable("worker", FLOWS, "--until-idle", folder=folder)
    epochs = cli("show", "x", "--json").document["epochs"]

    assert worker.returncode == 0
    assert (shown["status"], shown["reason"]) == ("waiting", "no live worker")
    assert [s["path"] for s in shown["steps"]] == ["note.1"]
    assert cli("result", "x").out == '["hi","go","last"]\n'
    assert [e["why"] for e in epochs] == ["drain"]


STOPS = """
import logging, os, signal
from durable import workflow

class Stop(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if " serves " in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)

logging.getLogger("durable").addHandler(Stop())

@workflow
async def nothing() -> None: ...
"""


def test_from_when_it_says_that_it_serves_it_drains(folder: Path) -> None:
    """Whoever reads the line may ask it to end at once."""
    (folder / "stops.py").write_text(STOPS)
    done = durable("worker", "stops.py", folder=folder)

    assert (done.code, "has stopped" in done.err) == (0, True), done.err


def test_a_second_signal_ends_it_at_once(
    cli: Cli, folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    """However long the grace is."""
    cli("start", THREE, "--id", "x", "--input", INPUT)
    worker = begin("worker", FLOWS, "--grace", "1h", folder=folder)
    started.append(worker)
    until(worker, "gate go")
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=20)

    assert worker.returncode == 130


def test_a_thread_that_hangs_does_not_keep_it(
    cli: Cli, folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    """After the grace it exits with 0, thread or no thread."""
    cli("start", f"{FLOWS}:hanging", "--id", "x")
    worker = begin("worker", FLOWS, "--grace", "100ms", folder=folder)
    started.append(worker)
    until(worker, "hang")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=20)

    assert worker.returncode == 0
    assert cli("show", "x", "--json").document["steps"] == []


def test_a_task_that_swallows_every_cancellation_does_not_keep_it(
    cli: Cli, folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    """Its run is given back; the task is left behind, and the process ends with 0."""
    cli("start", f"{FLOWS}:stubborn", "--id", "x")
    worker = begin("worker", FLOWS, "--grace", "100ms", folder=folder)
    started.append(worker)
    until(worker, "stubborn")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=20)

    assert worker.returncode == 0
    assert cli("list", "--json").document["runs"][0]["status"] == "waiting"


def test_after_kill_9_another_worker_finishes(
    cli: Cli, folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    """The run goes on in the other process, in a higher epoch."""
    cli("start", THREE, "--id", "x", "--input", INPUT)
    first = begin("worker", FLOWS, folder=folder)
    started.append(first)
    until(first, "gate go")
    first.kill()
    (folder / "go").touch()
    done = durable("worker", FLOWS, "--until-idle", folder=folder)
    epochs = cli("show", "x", "--json").document["epochs"]

    assert done.out == "gate go\nnote last\n"
    assert cli("result", "x").out == '["hi","go","last"]\n'
    assert [(e["epoch"], e["why"]) for e in epochs] == [(2, "takeover")]


def test_workers_and_sweep_see_the_dead(
    cli: Cli, folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    """`workers` lists a live worker; after kill -9 `sweep` frees its run and executes nothing."""
    cli("start", THREE, "--id", "x", "--input", INPUT)
    worker = begin("worker", FLOWS, "--name", "number one", folder=folder)
    started.append(worker)
    until(worker, "gate go")
    alive = cli("workers", "--json").document["workers"]
    running = cli("show", "x", "--json").document["status"]
    idle = cli("sweep", "--json").document
    worker.kill()
    worker.communicate(timeout=20)
    swept = cli("sweep", "--json").document
    (dead,) = cli("workers", "--json").document["workers"]
    shown = cli("show", "x", "--json").document

    assert [(w["label"], w["state"], w["queues"]) for w in alive] == [
        ("number one", "alive", ["default"])
    ]
    assert {"three", "quick", "hanging"} <= set(alive[0]["workflows"])
    assert running == "running"
    assert idle == {"freed": []}
    assert swept == {"freed": ["x"]}
    assert dead["state"] == "dead"
    assert shown["status"] == "waiting"
    assert [s["path"] for s in shown["steps"]] == ["note.1"]
