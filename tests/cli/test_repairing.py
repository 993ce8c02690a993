"""`retry`, `restart`, `fork`, `skip`, `release`, `purge` and `gc` on the command line."""

from __future__ import annotations

import io
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from durable.protocol import names
from durable.store.opening import open_store
from tests.cli.command import FLOWS, PROGRAM, Done
from tests.commands import environment

Cli = Callable[..., Done]

MENDABLE = f"{FLOWS}:mendable"
INPUT = '{"word": "it"}'


def _fail(cli: Cli, *runs: str) -> None:
    for run in runs:
        assert cli("run", MENDABLE, "--id", run, "--input", INPUT).code == 1


def _finish(cli: Cli, run: str, *, given: str = INPUT) -> Done:
    return cli("run", MENDABLE, "--id", run, "--input", given)


def test_a_failed_run_is_mended_and_retried(cli: Cli, folder: Path) -> None:
    """It goes on from the call that failed; what went before is not done again."""
    _fail(cli, "x")
    (folder / "mended").touch()

    retried = cli("retry", "x", "--reason", "mended")

    assert (retried.code, retried.out) == (0, "x: goes on from what failed\n")
    done = _finish(cli, "x")
    assert done.code == 0
    assert "note first" not in done.out
    assert done.out.splitlines()[-1] == '["first","it works","last"]'
    assert ": mended" in cli("show", "x").out


def test_what_is_not_failed_is_refused(cli: Cli, folder: Path) -> None:
    """A completed run: conflict, code 4; an unknown one: code 3; nothing changes."""
    (folder / "mended").touch()
    assert _finish(cli, "x").code == 0

    refused = cli("retry", "x")

    assert refused.code == 4
    assert refused.err.startswith("error: run 'x' has completed: there is nothing to retry")
    assert "hint: restart it" in refused.err
    assert cli("retry", "nobody").code == 3


def test_many_are_shown_first_and_need_a_yes(cli: Cli, folder: Path) -> None:
    """Chosen by filters, runs are listed; without --yes and a terminal nothing is done."""
    _fail(cli, "a", "b")
    (folder / "mended").touch()
    _finish(cli, "c")

    shown = cli("retry", "--workflow", "mendable", "--failed", "--since", "1d")
    assert shown.code == 2
    assert [line.split()[0] for line in shown.out.splitlines()] == ["RUN", "b", "a"]
    assert "2 runs would be" in shown.err
    assert cli("list", "--status", "failed", "--json").document["runs"]

    done = cli("retry", "--workflow", "mendable", "--failed", "--since", "1d", "--yes", "--json")
    assert done.code == 0
    assert {run["run"]: run["done"] for run in done.document["runs"]} == {"a": True, "b": True}
    assert cli("list", "--status", "failed", "--json").document["runs"] == []


def test_a_dry_run_does_nothing(cli: Cli) -> None:
    """It says which runs these are, however they were chosen."""
    _fail(cli, "a", "b")

    for verb in ("retry", "restart", "purge"):
        named = cli(verb, "a", "--dry-run")
        chosen = cli(verb, "--failed", "--dry-run", "--json")
        assert (named.code, named.out) == (0, f"a: nothing was done; without --dry-run: {verb}\n")
        assert {run["run"]: run["done"] for run in chosen.document["runs"]} == {
            "a": False, "b": False,
        }  # fmt: skip
    shown = cli("retry", "--failed", "--dry-run")
    assert shown.out.count("RuntimeError: it is broken") == 2
    assert shown.out.endswith("2 runs: nothing was done; without --dry-run: retry\n")
    assert len(cli("list", "--status", "failed", "--json").document["runs"]) == 2


def test_filters_that_find_nothing_say_so(cli: Cli) -> None:
    """That is no error: there is nothing to do."""
    cli("init")
    done = cli("retry", "--failed", "--yes")

    assert (done.code, done.out) == (0, "no runs\n")


def test_whoever_sits_at_a_terminal_is_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What will be done is shown with the error of each run; anything but yes does nothing."""
    _fail(cli, "a", "b")
    monkeypatch.setattr("sys.stdin", Terminal("n\n" * 2 + "y\n" * 2))

    for verb in (("retry", "--failed"), ("gc", "--older-than", "0s")):
        refused = cli(*verb)
        assert (refused.code, "nothing was done" in refused.err) == (2, True)
        assert refused.out.count("RuntimeError: it is broken") == 2

    assert cli("retry", "--failed").code == 0
    _fail(cli, "a", "b")
    assert cli("gc", "--older-than", "0s").out.endswith("] 2 runs purged, 20 objects\n")


class Terminal(io.StringIO):
    """Where somebody sits who types these lines."""

    def isatty(self) -> bool:
        return True


def test_runs_are_named_or_chosen(cli: Cli) -> None:
    """Neither is an error that shows both ways."""
    done = cli("retry")

    assert done.code == 2
    assert "--workflow NAME, --status WORD, --since 1d" in done.err


def test_one_error_does_not_keep_the_others(cli: Cli, folder: Path) -> None:
    """Each run is reported; the code is that of the first error."""
    _fail(cli, "a")
    (folder / "mended").touch()

    done = cli("retry", "nobody", "a")

    assert done.code == 3
    assert done.out.splitlines() == [
        "nobody: there is no run 'nobody'",
        "a: goes on from what failed",
    ]


def test_a_call_is_skipped(cli: Cli) -> None:
    """The run completes with the value that a person gave; who and why is shown."""
    _fail(cli, "x")

    done = cli("skip", "x", "mend.1", "--with", '"by hand"', "--reason", "no spare part")

    assert done.out == 'x: mend.1 returns "by hand"\n'
    assert _finish(cli, "x").out.splitlines()[-1] == '["first","by hand","last"]'
    (skipped,) = [s for s in cli("show", "x", "--json").document["steps"] if s["note"]]
    assert skipped["path"] == "mend.1"
    assert skipped["note"].endswith(": no spare part")
    assert cli("skip", "x", "mend.1", "--with", "{").code == 2


def test_a_run_is_forked_with_another_input(cli: Cli, folder: Path) -> None:
    """The new run has the past up to the call, then goes its own way."""
    _fail(cli, "x")
    (folder / "mended").touch()

    forked = cli(
        "fork", "x", "--from", "mend.1", "--id", "y", "--input", '{"word": "that"}',
        "--target", MENDABLE,
    )  # fmt: skip

    assert forked.out == "y\n"
    done = _finish(cli, "y", given='{"word": "that"}')
    assert "note first" not in done.out
    assert done.out.splitlines()[-1] == '["first","that works","last"]'
    assert cli("fork", "x", "--from", "mend.7").code == 3
    bad = cli("fork", "x", "--from", "mend.1", "--input", "[]", "--target", MENDABLE)
    assert bad.code == 2


def test_nobody_holds_a_run_that_waits(cli: Cli) -> None:
    """Releasing it says so."""
    cli("start", MENDABLE, "--id", "x", "--input", INPUT)

    assert cli("release", "x").out == "x: nobody holds it\n"
    assert cli("release", "nobody").code == 3


def test_a_run_is_purged(cli: Cli) -> None:
    """It is gone, and its id is free; one that is not over is kept."""
    _fail(cli, "x")
    cli("start", MENDABLE, "--id", "waits", "--input", INPUT)

    assert cli("purge", "x", "--reason", "old").code == 2  # there is no record to say it in
    assert cli("purge", "x").out.startswith("x: gone, ")
    assert cli("show", "x").code == 3
    assert cli("purge", "waits").code == 4
    assert cli("start", MENDABLE, "--id", "x", "--input", '{"word": "else"}').code == 0


def test_old_runs_are_collected(cli: Cli) -> None:
    """A dry run counts; younger ones stay."""
    _fail(cli, "a", "b")

    cli("retry", "a")
    _fail(cli, "a")  # one run, with an end of each of its two instances
    assert cli("gc", "--older-than", "30d").out == "0 runs purged, 0 objects\n"
    dry = cli("gc", "--older-than", "0s", "--dry-run").out.splitlines()
    assert sorted(line.split()[0] for line in dry) == ["2", "RUN", "a", "b"]
    assert dry[-1] == "2 runs would be purged"
    assert cli("gc", "--older-than", "0s", "--json").document["runs"] == 2
    assert cli("list").out == "no runs\n"


async def _damage(folder: Path, run: str) -> None:
    store = open_store(f"sqlite:///{folder}/.durable/durable.db")
    try:
        there = await store.read(names.start(run))
        assert there is not None
        await store.replace(there.name, there.generation, b"no record", nonce="n")
    finally:
        await store.aclose()


def test_a_damaged_run_keeps_no_other_from_being_collected(cli: Cli, folder: Path) -> None:
    """It is told, with the code of its error; the runs behind it are purged."""
    _fail(cli, "a", "b")
    anyio.run(_damage, folder, "a")

    done = cli("gc", "--older-than", "0s")
    again = cli("gc", "--older-than", "0s", "--json")

    assert done.out == "1 runs purged, 4 objects\n"
    assert done.err.startswith("a: run 'a': object 'runs/a/start' is damaged or foreign")
    assert (done.code, again.code) == (6, 6)
    assert again.document["runs"] == 0
    assert [failed["run"] for failed in again.document["failed"]] == ["a"]
    assert [run["run"] for run in cli("list", "--json").document["runs"]] == ["a"]


@pytest.mark.parametrize(
    ("words", "word"),
    [(("retry", "--failed", "--yes"), "retry"), (("gc", "--older-than", "0s", "--yes"), "purge")],
)
def test_a_terminal_is_shown_a_bar(
    cli: Cli, folder: Path, words: tuple[str, ...], word: str
) -> None:
    """Up to the last run; what came of them is on standard output, without it."""
    _fail(cli, "a", "b")
    terminal, its_end = pty.openpty()

    with os.fdopen(terminal, "rb", buffering=0) as screen:
        done = subprocess.run(
            [*PROGRAM, *words], cwd=folder, env={**environment(), "TERM": "xterm"},
            stdout=subprocess.PIPE, stderr=its_end, timeout=50, check=True,
        )  # fmt: skip
        os.close(its_end)
        drawn = screen.read(100_000)

    assert word.encode() in drawn
    assert b"100%" in drawn
    assert b"%" not in done.stdout
