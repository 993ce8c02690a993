"""`run`, `start` and `result`: what they print, how they end, how they go on."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pty
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import FLOWS, PROGRAM, Done, begin, durable, objects, put, until
from tests.commands import ROOT, environment

Cli = Callable[..., Done]

QUICK = f"{FLOWS}:quick"
THREE = f"{FLOWS}:three"
INPUT = '{"word": "hi"}'


# -- what they say --------------------------------------------------------------------------------


def test_run_prints_the_result_as_json(cli: Cli) -> None:
    """What steps print and the result are on standard output, progress on standard error."""
    done = cli("run", QUICK, "--id", "x", "--input", INPUT)

    assert (done.code, done.out) == (0, 'note hi\n{"said":"hi"}\n')
    assert done.err == "note.1: recorded\n"


def test_a_terminal_sees_progress_and_stdout_stays_clean(folder: Path) -> None:
    """On a terminal the calls in flight are drawn, on standard error alone."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "run", QUICK, "--id", "[red]x", "--input", INPUT],
        cwd=folder,
        env={**environment(), "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=writer,
    )
    os.close(writer)
    drawn = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
        while more := os.read(reader, 4096):
            drawn += more
    out, _ = process.communicate(timeout=20)
    os.close(reader)

    assert (process.returncode, out) == (0, b'note hi\n{"said":"hi"}\n')
    assert b"note.1: recorded" in drawn
    assert b"[red]x" in drawn


def test_run_with_json_prints_one_document(cli: Cli) -> None:
    """What steps print goes to standard error then, and nothing else does."""
    done = cli("run", QUICK, "--id", "x", "--input", INPUT, "--json")

    assert done.document == {"run": "x", "status": "completed", "result": {"said": "hi"}}
    assert done.err == "note hi\n"


def test_an_id_that_is_over_prints_its_outcome(cli: Cli) -> None:
    """The same line again runs nothing."""
    cli("run", QUICK, "--id", "x", "--input", INPUT)

    assert cli("run", QUICK, "--id", "x", "--input", '["hi"]').out == '{"said":"hi"}\n'


def test_a_failed_run_exits_with_1(cli: Cli) -> None:
    """The error is on standard error; asked again it is the same."""
    for _ in range(2):
        done = cli("run", f"{FLOWS}:failing", "--id", "x", "--input", '["closed"]')
        assert done.code == 1
        assert "run 'x' failed: builtins.PermissionError: closed" in done.err
    done = cli("result", "x", "--json")

    assert (done.code, done.out) == (1, "")
    assert done.error["code"] == "run_failed"
    assert done.error["run"] == "x"


def test_a_failed_run_says_what_its_error_consists_of(cli: Cli) -> None:
    """The members of a group, and what it came from, whether it just ran or is looked at later."""
    ran = cli("run", f"{FLOWS}:breaking", "--id", "x")
    inside = ["  ValueError: one", "  KeyError: 'two'", "  caused by ConnectionError: first"]

    assert "builtins.ExceptionGroup: both (2 sub-exceptions)" in ran.err
    assert ran.err.splitlines()[-3:] == inside
    assert cli("result", "x").err.splitlines()[-3:] == inside
    assert cli("show", "x").out.splitlines()[-3:] == inside


def test_start_prints_the_id_and_result_waits(cli: Cli) -> None:
    """Start executes nothing; result gives up after its timeout with 8."""
    started = cli("start", QUICK, "--id", "x", "--input", INPUT)
    early = cli("result", "x", "--timeout", "10ms", "--json")
    cli("run", QUICK, "--id", "x", "--input", INPUT)
    late = cli("result", "x")

    assert (started.code, started.out) == (0, "x\n")
    assert "no live worker" in started.err
    assert (early.code, early.error["code"]) == (8, "timeout")
    assert (late.code, late.out) == (0, '{"said":"hi"}\n')


def test_start_with_json(cli: Cli) -> None:
    """The document names run, workflow and instance; starting again names the same."""
    one = cli("--json", "start", QUICK, "--id", "x", "--input", INPUT)
    two = cli("start", QUICK, "--id", "x", "--input", INPUT, "--json")

    assert one.document.keys() == {"run", "workflow", "instance"}
    assert one.document == two.document


def test_input_from_a_file(cli: Cli, folder: Path) -> None:
    """`@file` is read."""
    (folder / "in.json").write_text(INPUT)

    assert cli("run", QUICK, "--input", "@in.json").code == 0


def test_input_from_standard_input(folder: Path) -> None:
    """`-` reads it to its end."""
    done = durable("run", QUICK, "--input", "-", folder=folder, given=INPUT)

    assert done.out == 'note hi\n{"said":"hi"}\n'


def test_tags_are_kept(cli: Cli) -> None:
    """`--tag` shows in lists and in `show`."""
    cli("start", QUICK, "--id", "x", "--input", INPUT, "--tag", "team=a=b", "--tag", "x=1")

    assert cli("show", "x", "--json").document["tags"] == {"team": "a=b", "x": "1"}


@pytest.mark.parametrize("odd", ["a/b", "a#b?c", "100 %", "-flag", "[red]", "../x", "日本 🙂"])
def test_odd_ids_work_in_every_command(cli: Cli, odd: str) -> None:
    """Whatever characters an id has."""
    assert cli("run", QUICK, f"--id={odd}", "--input", INPUT).code == 0
    assert cli("result", "--", odd).code == 0
    assert cli("show", "--json", "--", odd).document["run"] == odd
    assert [r["run"] for r in cli("list", "--json").document["runs"]] == [odd]
    assert cli("replay", "--target", FLOWS, "--", odd).code == 0


def test_another_workflow_or_input_is_a_conflict(cli: Cli) -> None:
    """Exit code 4, and nothing is executed or written."""
    cli("run", QUICK, "--id", "x", "--input", INPUT)
    for target, given in ((QUICK, '["other"]'), (f"{FLOWS}:failing", '["hi"]')):
        done = cli("start", target, "--id", "x", "--input", given, "--json")
        assert (done.code, done.error["code"], done.error["run"]) == (4, "conflict", "x")


def test_an_unknown_run_is_not_found(cli: Cli) -> None:
    """Exit code 3 from every command that takes a run."""
    cli("init")
    for command in ("show", "result"):
        done = cli(command, "nobody", "--json")
        assert (done.code, done.error["code"], done.error["run"]) == (3, "not_found", "nobody")


# -- how they end ---------------------------------------------------------------------------------


def test_ctrl_c_says_how_to_go_on_and_the_same_line_does(folder: Path) -> None:
    """Interrupted in its second step, the run continues there: the first is not repeated."""
    line = ["run", THREE, "--id", "order 1", "--input", INPUT]
    first = begin(*line, folder=folder)
    until(first, "gate go")
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=20)
    (folder / "go").touch()
    second = durable(*line, folder=folder)
    epochs = durable("show", "order 1", "--json", folder=folder).document["epochs"]

    assert first.returncode == 130
    assert "run 'order 1' keeps what is recorded" in err
    assert "durable run" in err
    assert "--id 'order 1'" in err
    assert [e["why"] for e in epochs] == ["drain"]  # handed over, not left to be found dead
    assert second.out == 'gate go\nnote last\n["hi","go","last"]\n'


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_at_the_very_beginning(folder: Path, as_json: bool) -> None:
    """While the package is still being imported it is one line, too, and no traceback."""
    (folder / "msgspec.py").write_text(
        "import threading\nprint('importing', flush=True)\nthreading.Event().wait()\n"
    )
    command = "import sys\nfrom durable_command import main\nsys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "list", *(["--json"] if as_json else [])],
        cwd=folder, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until(process, "importing")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    if as_json:
        assert json.loads(err)["error"]["code"] == "interrupted"
    else:
        assert err == "interrupted: stopped by Ctrl-C\n"


def test_the_command_is_what_its_script_calls(folder: Path) -> None:
    """What is installed as `durable` does what `python -m durable.cli` does."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["durable"].split(":")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}\nsys.exit({module}.{function}())", "show"],
        cwd=folder, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (2, durable("show", folder=folder).err)


def test_ctrl_c_names_an_id_left_to_chance(folder: Path) -> None:
    """The line that goes on carries the id."""
    process = begin("run", THREE, "--input", INPUT, "--json", folder=folder)
    until(process, "gate go", stream="stderr")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    error = json.loads(err)["error"]

    assert (process.returncode, out) == (130, "")
    assert error["code"] == "interrupted"
    assert error["hint"].endswith(f"--id {error['run']}")


def test_ctrl_c_leaves_a_thread_that_hangs(folder: Path) -> None:
    """A plain function that never returns does not keep the process."""
    process = begin("run", f"{FLOWS}:hanging", "--id", "x", folder=folder)
    until(process, "hang")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert "interrupted" in err


def test_after_kill_9_the_same_line_goes_on_at_once(folder: Path) -> None:
    """The dead process's lock proves its death: nobody waits for its lease to run out."""
    line = ["run", THREE, "--id", "x", "--input", INPUT]
    first = begin(*line, folder=folder)
    until(first, "gate go")
    first.kill()
    first.communicate(timeout=20)
    (folder / "go").touch()
    second = durable(*line, folder=folder)  # its timeout is what shows that it did not wait
    epochs = durable("show", "x", "--json", folder=folder).document["epochs"]

    assert second.out == 'gate go\nnote last\n["hi","go","last"]\n'
    assert [(e["epoch"], e["why"]) for e in epochs] == [(2, "takeover")]


def test_a_process_that_dies_in_a_step_repeats_only_that_step(folder: Path) -> None:
    """As sudden as a power cut: what was recorded stays."""
    line = ["run", f"{FLOWS}:deadly", "--id", "x"]
    first = durable(*line, folder=folder)
    (folder / "alive").touch()
    second = durable(*line, folder=folder)

    assert (first.code, first.out) == (9, "note kept\n")
    assert second.out == 'note done\n"done"\n'


def test_a_store_that_cannot_be_opened_exits_with_5(cli: Cli, folder: Path) -> None:
    """A file that is no database is refused, and left as it is."""
    (folder / "junk.db").write_text("this is no database, and it is long enough to be one" * 50)
    done = cli("--store", "sqlite:///junk.db", "run", QUICK, "--input", INPUT, "--json")

    assert (done.code, done.error["code"]) == (5, "store_refused")
    assert done.out == ""


def test_a_run_that_needs_attention_exits_with_6(cli: Cli, folder: Path) -> None:
    """A damaged record: the message names it, `show` shows reason and remedy."""
    cli("start", QUICK, "--id", "x", "--input", INPUT)
    instance = cli("show", "x", "--json").document["instance"]
    put(folder, f"runs/x/{instance}/steps/note.1", b"garbage")
    run = cli("run", QUICK, "--id", "x", "--input", INPUT, "--json")
    result = cli("result", "x", "--json")
    shown = cli("show", "x")

    assert (run.code, run.error["code"]) == (6, "needs_attention")
    assert (result.code, result.error["code"]) == (6, "needs_attention")
    assert "steps/note.1" in result.error["message"]
    assert shown.code == 0
    assert "needs-attention" in shown.out
    assert "remedy" in shown.out


def test_a_cancelled_run_exits_with_7(cli: Cli, folder: Path) -> None:
    """The outcome `cancelled` is told from failures."""
    cli("start", QUICK, "--id", "x", "--input", INPUT)
    instance = cli("show", "x", "--json").document["instance"]
    body = b'{"status":"cancelled","nonce":"n","epoch":1,"time":1.0}'
    put(folder, f"runs/x/{instance}/result", body)
    done = cli("result", "x", "--json")

    assert (done.code, done.error["code"]) == (7, "cancelled")


# -- bad input ------------------------------------------------------------------------------------

BAD = {
    "unknown file": ("run", "nowhere.py"),
    "unknown module": ("run", "no.such.module"),
    "unknown workflow": ("run", f"{FLOWS}:nothing"),
    "no workflow": ("run", f"{FLOWS}:not_a_workflow"),
    "a step": ("run", f"{FLOWS}:note"),
    "several workflows": ("run", FLOWS),
    "bad JSON": ("run", QUICK, "--input", "{word"),
    "neither object nor array": ("run", QUICK, "--input", "1"),
    "no such input file": ("run", QUICK, "--input", "@nowhere.json"),
    "missing argument": ("run", QUICK),
    "extra argument": ("run", QUICK, "--input", '["a", "b"]'),
    "unknown argument": ("run", QUICK, "--input", '{"word": "a", "x": 1}'),
    "argument of another type": ("run", QUICK, "--input", '{"word": ["a"]}'),
    "empty id": ("run", QUICK, "--input", INPUT, "--id", ""),
    "dots": ("run", QUICK, "--input", INPUT, "--id", ".."),
    "control character": ("run", QUICK, "--input", INPUT, "--id", "a\tb"),
    "long id": ("run", QUICK, "--input", INPUT, "--id", "x" * 201),
    "bad queue": ("run", QUICK, "--input", INPUT, "--queue", ""),
    "bad tag": ("run", QUICK, "--input", INPUT, "--tag", "novalue"),
    "short ttl": ("worker", FLOWS, "--ttl", "11s"),
    "bad ttl": ("worker", FLOWS, "--ttl", "soon"),
    "no concurrency": ("worker", FLOWS, "--concurrency", "0"),
    "no targets": ("worker",),
    "unknown target": ("worker", "nowhere.py"),
    "unknown command": ("frobnicate",),
    "unknown flag": ("list", "--frobnicate"),
    "bad status": ("list", "--status", "asleep"),
    "bad timeout": ("result", "before", "--timeout", "-1"),
    "bad store": ("--store", "ftp://x", "run", QUICK, "--input", INPUT),
    "a store on no bucket": ("--store", "gs://", "run", QUICK, "--input", INPUT),
}


@pytest.mark.parametrize("words", BAD.values(), ids=BAD)
def test_bad_input_exits_with_2_and_writes_nothing(
    cli: Cli, folder: Path, words: tuple[str, ...]
) -> None:
    """A clear error as one document, and the store as it was."""
    cli("start", QUICK, "--id", "before", "--input", INPUT)
    before = objects(folder)
    done = cli(*words, "--json")

    assert (done.code, done.out) == (2, "")
    assert done.error.keys() == {"code", "message", "hint", "run"}
    assert len(done.error["message"]) > 10
    assert objects(folder) == before


def test_arguments_that_do_not_fit_show_the_signature(cli: Cli) -> None:
    """And never a value: it may be a secret."""
    done = cli("run", QUICK, "--input", '{"wrod": "hunter2"}')

    assert "quick(word: str)" in done.err.replace("'", "")
    assert "hunter2" not in done.err


def test_help_is_no_error(cli: Cli, folder: Path) -> None:
    """`--help` exits with 0 and lists the commands."""
    done = durable("--help", folder=folder)

    assert done.code == 0
    assert "replay" in done.out


def test_uvloop_is_used_where_it_is_installed(tmp_path: Path) -> None:
    """The command's event loop is uvloop's, or asyncio's own where there is no uvloop."""
    done = durable("run", f"{FLOWS}:event_loop", folder=tmp_path)
    installed = importlib.util.find_spec("uvloop") is not None

    assert json.loads(done.out) == ("uvloop" if installed else "asyncio.unix_events")


# -- options of the run ----------------------------------------------------------------------------

QUEUED = """
from durable import Queue, workflow

@workflow(queue=Queue("q", concurrency=1, debounce="5s"))
def shout(word: str) -> str:
    return word.upper()
"""


@pytest.fixture
def queued(folder: Path) -> Cli:
    """`durable start` of that file, in a process of its own."""
    (folder / "queued.py").write_text(QUEUED)

    def start(id: str, *words: str) -> Done:
        return durable("start", "queued.py", "--id", id, "--input", '["x"]', *words, folder=folder)

    return start


@pytest.mark.parametrize("key", ["--dedup-key", "--debounce-key"])
def test_start_with_a_key_gives_the_run_that_carries_it(queued: Cli, key: str) -> None:
    """The second start prints the id of the first; both keys at once are refused."""
    first = queued("a", key, "k")
    second = queued("b", key, "k", "--json")
    other = queued("c", key, "l")
    both = queued("d", "--dedup-key", "k", "--debounce-key", "k")

    assert (first.out, second.document["run"], other.out) == ("a\n", "a", "c\n")
    assert both.code == 2
    assert "not allowed with" in both.err


def test_a_debounce_key_needs_a_quiet_time(cli: Cli) -> None:
    """A queue that does not say how long to wait is told of, with what to write."""
    done = cli("start", QUICK, "--debounce-key", "k", "--input", INPUT)

    assert done.code == 2
    assert "queue 'default' does not say how long to wait" in done.err
    assert "Queue('default', debounce=\"5s\")" in done.err


def test_priority_and_timeout_are_the_runs(queued: Cli, folder: Path) -> None:
    """A lower priority goes first in the line; the timeout counts from the start."""
    queued("late")
    queued("first", "--priority", "-3")
    queued("short", "--run-timeout", "1ms")
    durable("worker", "queued.py", "--queues", "q", "--until-idle", folder=folder)
    listed = durable("list", "--json", folder=folder).document["runs"]
    ends = {run["run"]: run["ended"] for run in listed}
    short = durable("result", "short", "--json", folder=folder)

    assert ends["first"] < ends["late"]
    assert short.error["code"] == "run_failed"
    assert "RunTimeout" in short.error["message"]
    assert queued("x", "--priority", "1000").code == 2
