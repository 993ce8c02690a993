"""`durable schedules`: what runs by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cli.command import FLOWS, Done, durable

Cli = Callable[..., Done]

CREATE = ("schedules", "create", "daily", f"{FLOWS}:quick", "--input", '{"word": "hi"}')


def test_a_schedule_from_beginning_to_end(cli: Cli) -> None:
    """Created, listed, shown, paused, resumed, removed."""
    cli("init")
    assert cli("schedules").out == "no schedules\n"
    made = cli(*CREATE, "--cron", "0 2 * * *", "--tz", "Europe/Rome")
    assert made.out.startswith("schedule 'daily' runs 'quick' 0 2 * * * (Europe/Rome); next: 20")
    assert "orphaned" in cli("schedules", "list").out
    assert cli("schedules", "show", "daily", "--json").document["overlap"] == "skip"
    assert cli("schedules", "pause", "daily").out == "schedule 'daily' is paused\n"
    assert cli("schedules", "--json").document["schedules"][0]["state"] == "paused"
    assert cli("schedules", "resume", "daily", "--json").document["done"] == "resumed"
    assert "next " in cli("schedules", "show", "daily").out
    assert cli("schedules", "remove", "daily").code == 0
    assert cli("schedules").out == "no schedules\n"


def test_triggered_and_backfilled_runs_are_executed(cli: Cli, folder: Path) -> None:
    """Each is a run like any other, and a worker takes it."""
    cli(*CREATE, "--every", "24h")
    run = cli("schedules", "trigger", "daily").out.strip()
    begun = cli("schedules", "backfill", "daily", "2026-03-01", "2026-03-02", "--json").document
    durable("worker", FLOWS, "--until-idle", folder=folder)

    assert begun["runs"] == ["daily@2026-03-01T00:00:00Z", "daily@2026-03-02T00:00:00Z"]
    for name in (run, *begun["runs"]):
        assert cli("result", name).out == '{"said":"hi"}\n'


def test_what_is_wrong_is_said(cli: Cli) -> None:
    """Bad expressions, unknown names and moments are usage errors or not found."""
    cli("init")
    assert "Bad minute" in cli(*CREATE, "--cron", "61 2 * * *").err
    assert cli(*CREATE).code == 2
    assert cli("schedules", "show", "none").code == 3
    assert "is no moment" in cli("schedules", "backfill", "x", "yesterday", "today").err
    assert "--tz is of --cron" in cli(*CREATE, "--every", "1h", "--tz", "Europe/Rome").err
    assert cli("schedules").out == "no schedules\n"


def test_a_schedule_of_code_is_changed_in_the_code(cli: Cli, folder: Path) -> None:
    """It cannot be created over, and who removes it is told that it comes back."""
    (folder / "hourly.py").write_text(
        "from durable import every, workflow\n@workflow(schedule=every('1h'))\ndef hourly(): ...\n"
    )
    durable("worker", "hourly.py", "--until-idle", folder=folder)
    over = cli("schedules", "create", "hourly", f"{FLOWS}:quick", *CREATE[-2:], "--every", "2h")
    shown = cli("schedules", "show", "hourly", "--json").document
    removed = cli("schedules", "remove", "hourly")

    assert (over.code, "stands in the code of workflow 'hourly'" in over.err) == (4, True)
    assert (shown["workflow"], shown["when"]) == ("hourly", "every 1h")
    assert removed.out == "schedule 'hourly' is removed\n"
    assert "comes back when a worker starts" in removed.err
    assert cli(*CREATE, "--every", "1h").code == 0
    assert cli("schedules", "remove", "daily").err == ""
