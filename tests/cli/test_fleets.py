"""Fleets of worker processes: labels, several processes, rolling restarts that lose nothing."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.command import FLOWS, Done, begin, durable, until

Cli = Callable[..., Done]

FLEET = """
import os, time
from durable import Queue, step, workflow

@step
def note(number: int) -> int:
    with open("notes", "a") as file:
        file.write(f"{number} {os.getpid()}\\n")
    time.sleep(0.2)
    return number

@workflow
async def count(number: int) -> int:
    return sum([await note.call(number) for _ in range(3)])

@workflow(label="gpu")
async def train(number: int) -> int:
    return await note.call(number)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are killed at the end, whatever the test did."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate(timeout=20)


def start(flow: str, number: int, folder: Path) -> None:
    words = ("--id", f"c{number}", "--input", f"[{number}]")
    done = durable("start", f"{flow}:count", *words, folder=folder)
    assert done.code == 0, done.err


@pytest.fixture
def flow(folder: Path) -> str:
    (folder / "fleet.py").write_text(FLEET)
    return "fleet.py"


def test_a_label_keeps_a_workflow_from_other_workers(cli: Cli, folder: Path, flow: str) -> None:
    """Without the label it is left, and shown as waiting with the reason; with it, it is run."""
    durable("start", f"{flow}:train", "--id", "t", "--input", "[1]", folder=folder)
    durable("worker", flow, "--until-idle", folder=folder)
    waiting = durable("show", "t", "--json", folder=folder).document
    done = durable("worker", flow, "--label", "gpu", "--until-idle", folder=folder)

    assert waiting["status"] == "waiting"
    assert done.code == 0
    assert durable("result", "t", folder=folder).out == "1\n"


def test_why_a_run_waits(cli: Cli, folder: Path, started: list[subprocess.Popen[str]]) -> None:
    """No live worker; then one that lacks the workflow: each is said."""
    cli("start", f"{FLOWS}:quick", "--id", "x", "--input", '{"word": "hi"}')
    nobody = cli("show", "x", "--json").document["reason"]
    worker = begin("worker", f"{FLOWS}:three", folder=folder)
    started.append(worker)
    until(worker, "serves three", stream="stderr")
    ignorant = nobody
    for _ in range(100):
        ignorant = cli("show", "x", "--json").document["reason"]
        if ignorant != nobody:
            break
        time.sleep(0.05)

    assert nobody == "no live worker"
    assert ignorant == "no live worker knows workflow 'quick'"


def test_several_processes_share_the_work(folder: Path, flow: str) -> None:
    """`--processes 2` runs two workers, and ends when nothing is left."""
    for number in range(6):
        durable(
            "start", f"{flow}:count", "--id", f"c{number}", "--input", f"[{number}]", folder=folder
        )
    done = durable(
        "worker", flow, "--processes", "2", "--concurrency", "1", "--until-idle", folder=folder
    )

    assert done.code == 0
    notes = [line.split() for line in (folder / "notes").read_text().splitlines()]
    assert len({process for _, process in notes}) == 2
    assert durable("result", "c5", folder=folder).out == "15\n"


def test_a_rolling_restart_loses_nothing(
    folder: Path, flow: str, started: list[subprocess.Popen[str]]
) -> None:
    """Each worker is replaced in turn, one of them killed: every run ends."""
    for number in range(8):
        durable(
            "start", f"{flow}:count", "--id", f"c{number}", "--input", f"[{number}]", folder=folder
        )

    def worker() -> subprocess.Popen[str]:
        process = begin("worker", flow, "--concurrency", "2", folder=folder)
        started.append(process)
        until(process, "serves count", stream="stderr")
        return process

    first, second = worker(), worker()
    third = worker()
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=30) == 0
    fourth = worker()
    second.kill()
    for number in range(8):
        result = durable("result", f"c{number}", "--timeout", "40s", folder=folder)
        assert result.out == f"{3 * number}\n", result.err
    for process in (third, fourth):
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0

    notes = [line.split()[0] for line in (folder / "notes").read_text().splitlines()]
    extra = {n: notes.count(str(n)) - 3 for n in range(8)}
    assert all(more >= 0 for more in extra.values())
    assert sum(extra.values()) <= 2  # bodies in flight when a worker was killed run again
