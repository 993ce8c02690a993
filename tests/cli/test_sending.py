"""`durable send`, and what the command line says of runs that wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import FLOWS, Done, begin, durable

Cli = Callable[..., Done]

APPROVED = f"{FLOWS}:approved"
NAP = f"{FLOWS}:nap"


def test_an_event_from_the_command_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parked run is shown as parked; an event wakes it; a run that is over says so."""
    monkeypatch.setenv("DURABLE_ALWAYS_PARK", "1")
    cli("start", APPROVED, "--id", "x")
    idle = cli("worker", FLOWS, "--until-idle", "--json")
    assert idle.document["parked"] == 1

    shown = cli("show", "x")
    assert "status    parked\nwhy       for event 'approval' until" in shown.out
    assert "event-approval.1: for event" in shown.out
    assert cli("list", "--status", "parked", "--json").document["runs"][0]["run"] == "x"

    sent = cli("send", "x", "approval", "--input", '{"limit": 7}', "--key", "k", "--json")
    assert (sent.code, sent.document["answer"]) == (0, "accepted")
    cli("worker", FLOWS, "--until-idle")
    assert cli("result", "x").out == "7\n"
    late = cli("send", "x", "approval", "--input", '{"limit": 8}')
    assert (late.code, late.out) == (1, "finished\n")


def test_a_value_that_does_not_fit_is_refused(cli: Cli) -> None:
    """With the code at hand the value is checked before it is sent; an unknown run is said."""
    cli("start", APPROVED, "--id", "x")

    unfit = cli("send", "x", "approval", "--input", '{"limit": "seven"}', "--target", FLOWS)
    assert unfit.code == 2
    assert "the value of event 'approval' does not fit" in unfit.err
    assert cli("send", "nobody", "approval").code == 3


def test_run_waits_in_the_foreground(folder: Path) -> None:
    """`durable run` goes on until the run is over, parked or not; its worker keeps the time."""
    running = begin("run", APPROVED, "--id", "x", folder=folder)
    for _ in range(200):
        if durable("show", "x", folder=folder).out.count("event-approval.1"):
            break
    sent = durable("send", "x", "approval", "--input", '{"limit": 7}', folder=folder)
    out, _ = running.communicate(timeout=20)

    assert sent.out == "accepted\n"
    assert (running.returncode, out) == (0, "7\n")


def test_a_sync_workflow_sleeps(cli: Cli) -> None:
    """`sync.sleep` in a plain function: run in the foreground it takes its time and goes on."""
    assert cli("run", NAP, "--input", '{"duration": "200ms"}').out == '"rested"\n'


VERSIONED = """
from durable import wait_event, workflow

@workflow(name="asked", version="1", events={"answer": int})
async def asked_1() -> int:
    return await wait_event("answer")

@workflow(name="asked", version="2", events={"answer": str})
async def asked() -> str:
    return await wait_event("answer")
"""


def test_an_event_is_checked_by_the_version_of_its_run(folder: Path) -> None:
    """Not by the newest: its run may wait for something else."""
    (folder / "asked.py").write_text(VERSIONED)
    durable("start", "asked.py:asked_1", "--id", "old", folder=folder)
    durable("start", "asked.py:asked", "--id", "new", folder=folder)

    def send(run: str, given: str) -> int:
        words = ("send", run, "answer", "--input", given, "--target", "asked.py")
        return durable(*words, folder=folder).code

    assert (send("old", '"seven"'), send("new", "7")) == (2, 2)
    assert (send("old", "7"), send("new", '"seven"')) == (0, 0)


def test_a_value_with_a_name_twice_is_refused(cli: Cli) -> None:
    """As the input of a run is: which of the two counts nobody has said."""
    cli("start", f"{FLOWS}:approved", "--id", "x")

    for words in (("send", "x", "go", "--input"), ("skip", "x", "a.1", "--with")):
        done = cli(*words, '{"limit": 1, "limit": 2}')
        assert done.code == 2
        assert "'limit' twice in one object" in done.err
