"""`tail`: a run followed to its end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import FLOWS, Done, begin, put

Cli = Callable[..., Done]

TELLING = f"{FLOWS}:telling"


@pytest.fixture
def followed(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []

    def follow(*words: str) -> subprocess.Popen[str]:
        processes.append(begin("tail", *words, folder=folder))
        return processes[-1]

    yield follow
    for process in processes:
        process.kill()
        process.communicate()


def documents(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def test_it_tells_what_comes_while_it_comes(
    cli: Cli, folder: Path, followed: Callable[..., subprocess.Popen[str]]
) -> None:
    """Calls and published progress, one document a line, the last one the outcome."""
    cli("start", TELLING, "--id", "x", "--input", '["hi"]')
    tail = followed("x", "--json")
    worker = begin("worker", FLOWS, "--until-idle", folder=folder)
    lines = documents(tail)
    seen = []
    for line in lines:
        seen.append(line)
        if line["kind"] == "published" and line["value"] == {"done": 1}:
            break  # while the run still waits at its gate
    (folder / "go").touch()
    seen += lines
    worker.communicate(timeout=20)

    assert tail.wait(20) == 0
    told = [line for line in seen if line["kind"] == "call"]
    assert [(line["path"], line["outcome"], line["value"]) for line in told] == [
        ("note.1", "value", "hi"), ("gate.1", "value", "go"),
    ]  # fmt: skip
    assert [line["value"] for line in seen if line["kind"] == "published"][-1] == {"done": 2}
    assert {"kind": "end", "status": "completed", "result": "hi"}.items() <= seen[-1].items()


def test_of_a_run_that_is_over_it_tells_all_at_once(cli: Cli, folder: Path) -> None:
    """In its order, for people; the exit code is that of the outcome."""
    (folder / "go").touch()
    cli("run", TELLING, "--id", "x", "--input", '["hi"]')
    done = cli("tail", "x")
    lines = [line.split("  ", 1)[1] for line in done.out.splitlines()]

    assert done.code == 0
    assert lines[-1] == 'completed: "hi"'
    assert sorted(lines[:-1]) == ['gate.1  "go"', 'note.1  "hi"', 'progress = {"done":2}']


def test_a_failed_run_exits_as_such(cli: Cli) -> None:
    """Exit code 1, and the error in the last line."""
    cli("run", f"{FLOWS}:failing", "--id", "x", "--input", '["no"]')
    done = cli("tail", "x", "--json")
    last = json.loads(done.out.splitlines()[-1])

    assert done.code == 1
    assert (last["status"], last["error"]) == ("failed", "builtins.PermissionError: no")


def test_a_parked_run_is_followed_to_its_end(
    cli: Cli, followed: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it published before it was parked is told while nobody holds it, then the rest."""
    monkeypatch.setenv("DURABLE_ALWAYS_PARK", "1")
    cli("start", f"{FLOWS}:asking", "--id", "x")
    cli("worker", FLOWS, "--until-idle")
    assert "parked" in cli("show", "x").out
    tail = followed("x", "--json")
    lines = documents(tail)
    phases = []
    for line in lines:
        phases += [line["value"]] if line["kind"] == "published" else []
        if phases == ["asked"]:
            break
    cli("send", "x", "answer", "--input", '"yes"')
    cli("worker", FLOWS, "--until-idle")
    rest = list(lines)

    assert tail.wait(20) == 0
    assert [line["value"] for line in rest if line["kind"] == "published"] == ["answered"]
    assert {"kind": "end", "status": "completed", "result": "yes"}.items() <= rest[-1].items()


def test_a_cancelled_run_exits_as_such(cli: Cli) -> None:
    """Exit code 7; its last line says what it was."""
    cli("start", TELLING, "--id", "x", "--input", '["hi"]')
    cli("cancel", "x")
    cli("worker", FLOWS, "--until-idle")
    done = cli("tail", "x", "--json")

    assert done.code == 7
    assert json.loads(done.out.splitlines()[-1])["status"] == "cancelled"


def test_of_a_run_that_needs_attention_it_tells_why(cli: Cli, folder: Path) -> None:
    """And ends: nothing more will come until somebody does something."""
    cli("start", f"{FLOWS}:quick", "--id", "x", "--input", '["hi"]')
    instance = cli("show", "x", "--json").document["instance"]
    put(folder, f"runs/x/{instance}/steps/note.1", b"garbage")
    cli("worker", FLOWS, "--until-idle")
    done = cli("tail", "x", "--json")

    assert (done.code, done.error["code"]) == (6, "needs_attention")
    assert "steps/note.1" in done.error["message"]


def test_an_unknown_run_is_an_error(cli: Cli) -> None:
    """As for every command."""
    cli("init")
    assert cli("tail", "nobody").code == 3


def test_show_has_what_was_published(cli: Cli, folder: Path) -> None:
    """The newest value of each name."""
    (folder / "go").touch()
    cli("run", TELLING, "--id", "x", "--input", '["hi"]')

    assert cli("show", "x", "--json").document["published"] == {"progress": {"done": 2}}
    assert 'progress   {"done":2}' in cli("show", "x").out
