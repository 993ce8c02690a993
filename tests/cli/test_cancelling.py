"""`durable cancel`: what it says, and how it ends."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import FLOWS, Done, begin, durable, until

Cli = Callable[..., Done]

THREE = f"{FLOWS}:three"
QUICK = f"{FLOWS}:quick"
INPUT = '{"word": "hi"}'


def test_a_run_in_another_process_is_cancelled(folder: Path) -> None:
    """The command waits for the outcome; both it and the run's own command end with code 7."""
    running = begin("run", THREE, "--id", "x", "--input", INPUT, folder=folder)
    until(running, "gate go")

    done = durable("cancel", "x", "--reason", "wrong order", "--wait", folder=folder)
    _, said = running.communicate(timeout=20)

    assert (done.code, done.out, done.err) == (7, "cancelled\n", "")
    assert running.returncode == 7
    assert said.splitlines()[-1] == "error: run 'x' was cancelled: wrong order"
    assert durable("result", "x", folder=folder).code == 7


def test_it_says_requested_or_finished(cli: Cli) -> None:
    """Without --wait it ends at once, with code 0 either way."""
    cli("start", QUICK, "--id", "x", "--input", INPUT)
    cli("run", QUICK, "--id", "y", "--input", INPUT)

    assert (cli("cancel", "x").code, cli("cancel", "x").out) == (0, "requested\n")
    assert (cli("cancel", "y").code, cli("cancel", "y").out) == (0, "finished\n")
    assert cli("cancel", "x", "--json").document == {"run": "x", "answer": "requested"}
    assert cli("run", QUICK, "--id", "x", "--input", INPUT).code == 7


def test_with_wait_the_code_is_that_of_the_outcome(cli: Cli) -> None:
    """0 completed, 1 failed, 7 cancelled, 8 not over in time, 3 unknown."""
    cli("start", QUICK, "--id", "waits", "--input", INPUT)
    cli("run", QUICK, "--id", "done", "--input", INPUT)
    cli("run", f"{FLOWS}:failing", "--id", "failed", "--input", '{"said": "no"}')

    done = cli("cancel", "done", "--wait", "--json")
    assert (done.code, done.document) == (0, {"run": "done", "status": "completed"})
    assert cli("cancel", "failed", "--wait").code == 1
    assert cli("cancel", "waits", "--wait", "--timeout", "0").code == 8
    assert cli("cancel", "nobody").code == 3


def test_a_signal_is_no_cancellation(folder: Path) -> None:
    """Interrupted, a run keeps its state, and goes on from there."""
    running = begin("run", THREE, "--id", "x", "--input", INPUT, folder=folder)
    until(running, "gate go")
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)

    assert running.returncode == 130
    assert durable("result", "x", "--timeout", "0", folder=folder).code == 8


def test_show_tells_who_asked_and_what_was_not_undone(cli: Cli) -> None:
    """The request with its reason, also while nobody has seen it; and the notes of the outcome."""
    cli("start", f"{FLOWS}:saga", "--id", "x", "--input", "{}")
    cli("cancel", "x", "--reason", "too late")
    said = cli("show", "x").out
    assert "cancel    asked for at " in said
    assert said.partition("asked for at ")[2].splitlines()[0].endswith(": too late")

    assert cli("run", f"{FLOWS}:saga", "--id", "y", "--input", "{}").code == 1
    said = cli("show", "y").out
    assert "note      'kept.1' was not undone: PermissionError: closed" in said
    assert cli("show", "y", "--json").document["cancel"] is None
    assert cli("show", "x", "--json").document["cancel"]["reason"] == "too late"


@pytest.mark.parametrize("verb", [("result", "x"), ("cancel", "x", "--wait")])
@pytest.mark.parametrize("timeout", ["0", "20ms"])
def test_a_timeout_says_why_nobody_works_on_the_run(
    cli: Cli, verb: tuple[str, ...], timeout: str
) -> None:
    """The reason is the one that `durable list` shows."""
    cli("start", QUICK, "--id", "x", "--input", INPUT)
    [listed] = cli("list", "--json").document["runs"]

    done = cli(*verb, "--timeout", timeout)

    assert done.code == 8
    assert done.err.endswith(f" s: waiting, {listed['reason']}\n")
    assert listed["reason"] == "no live worker"
