"""`list` and `show`: text for people, documents for programs."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.command import FLOWS, Done

Cli = Callable[..., Done]

QUICK = f"{FLOWS}:quick"
INPUT = '{"word": "hi"}'


def test_list_shows_runs_with_their_status(cli: Cli) -> None:
    """One line each, and why a run waits."""
    cli("run", QUICK, "--id", "done", "--input", INPUT)
    cli("run", f"{FLOWS}:failing", "--id", "broken", "--input", '["x"]')
    cli("start", QUICK, "--id", "new", "--input", INPUT)
    head, *lines = cli("list").out.splitlines()

    assert head.split() == ["RUN", "WORKFLOW", "STATUS", "STARTED", "ENDED", "WHY"]
    assert [line.split()[:3] for line in lines] == [
        ["new", "quick", "waiting"],
        ["broken", "failing", "failed"],
        ["done", "quick", "completed"],
    ]
    assert lines[0].endswith("no live worker")


def test_list_filters_and_limits(cli: Cli) -> None:
    """By workflow, by status, and at most so many."""
    for run in ("a", "b"):
        cli("run", QUICK, "--id", run, "--input", INPUT)
    cli("run", f"{FLOWS}:failing", "--id", "c", "--input", '["x"]')

    def listed(*words: str) -> list[str]:
        return [r["run"] for r in cli("list", "--json", *words).document["runs"]]

    assert listed("--workflow", "quick") == ["b", "a"]
    assert listed("--status", "failed") == ["c"]
    assert listed("--limit", "1") == ["c"]
    assert listed("--status", "parked") == []


def test_an_empty_list_says_so(cli: Cli) -> None:
    """Not even a heading is printed; the document is an empty list."""
    cli("init")
    assert cli("list").out == "no runs\n"
    assert cli("list", "--json").document == {"runs": []}
    assert cli("workers").out == "no workers\n"
    assert cli("workers", "--json").document == {"workers": []}
    assert cli("sweep").out == "0 runs freed\n"


def test_list_documents_have_one_shape(cli: Cli) -> None:
    """The same keys for runs that are over and runs that are not."""
    cli("run", QUICK, "--id", "a", "--input", INPUT)
    cli("start", QUICK, "--id", "b", "--input", INPUT)
    keys = {"run", "workflow", "status", "reason", "instance", "started", "ended", "tags"}

    assert [set(run) for run in cli("list", "--json").document["runs"]] == [keys, keys]


def test_show_of_a_completed_run(cli: Cli) -> None:
    """Status, result and every recorded call."""
    cli("run", QUICK, "--id", "x", "--input", INPUT)
    shown = cli("show", "x", "--json").document
    text = cli("show", "x").out

    assert (shown["run"], shown["workflow"], shown["status"]) == ("x", "quick", "completed")
    assert shown["result"] == {"said": "hi"}
    assert (shown["error"], shown["attention"], shown["epochs"]) == (None, None, [])
    (step,) = shown["steps"]
    assert (step["path"], step["outcome"], step["value"]) == ("note.1", "value", "hi")
    assert (step["attempts"], step["epoch"], step["error"]) == (1, 1, None)
    assert 'note.1  value    "hi"' in text


def test_show_of_a_failed_run(cli: Cli) -> None:
    """The error, and where it was raised."""
    cli("run", f"{FLOWS}:failing", "--id", "x", "--input", '["no way"]')
    shown = cli("show", "x", "--json").document
    text = cli("show", "x").out

    assert shown["status"] == "failed"
    assert shown["error"]["type"] == "builtins.PermissionError"
    assert [s["outcome"] for s in shown["steps"]] == ["value", "error"]
    assert "builtins.PermissionError: no way" in text
    assert "flows.py" in text


def test_show_of_a_waiting_run(cli: Cli) -> None:
    """It says what it waits for."""
    cli("start", QUICK, "--id", "x", "--input", INPUT)
    shown = cli("show", "x", "--json").document

    assert (shown["status"], shown["reason"]) == ("waiting", "no live worker")
    assert (shown["steps"], shown["ended"], shown["result"]) == ([], None, None)
    assert "no live worker" in cli("show", "x").out


def test_a_failed_run_shows_its_error_wherever_it_is_looked_for(cli: Cli) -> None:
    """In lists, and with the line of the step's body that raised it."""
    cli("run", f"{FLOWS}:failing", "--id", "x", "--input", '["closed"]')

    [listed] = cli("list", "--json").document["runs"]
    shown = cli("show", "x").out

    assert listed["reason"] == "PermissionError: closed"
    assert "PermissionError: closed" in cli("list").out
    body, workflow = shown.split("In the body of fail.1:")[1].split("In the workflow:")
    assert "raise PermissionError(said)" in body
    assert "await fail(said)" in workflow
    [step] = [s for s in cli("show", "x", "--json").document["steps"] if s["traceback"]]
    assert step["path"] == "fail.1"
