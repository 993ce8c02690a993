"""`replay`: today's code against the record, without executing or writing anything."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durable.cli import replaying, selecting
from durable.client import Client, reading
from durable.decorators import step, workflow
from durable.runtime.definitions import WorkflowDefinition
from durable.store import Store
from durable.store.memory import Bucket, MemoryBackend
from tests.cli.command import FLOWS, Done, durable, objects

Cli = Callable[..., Done]

INPUT = '{"word": "hi"}'
LIMIT = "3 s"  # of a replay that never ends; one that does takes a hundredth on a quiet machine

bodies: list[str] = []


@step(name="replay.add")
async def add(number: int) -> int:
    bodies.append(f"add {number}")
    return number + 1


@step(name="replay.show")
async def show(text: str) -> str:
    bodies.append(f"show {text}")
    return text


@workflow(name="replay.recorded")
async def recorded(number: int) -> str:
    return await show(str(await add(number)))


@workflow(name="replay.same")
async def same(number: int) -> str:
    more = await add(number)
    return await show(f"{more}")


@workflow(name="replay.inserted")
async def inserted(number: int) -> str:
    more = await add(number)
    await add(99)
    return await show(f"{more}")


@workflow(name="replay.dropped")
async def dropped(number: int) -> str:
    return str(await add(number))


@workflow(name="replay.other_arguments")
async def other_arguments(number: int) -> str:
    return await show(str(await add(number + 1)))


@workflow(name="replay.other_end")
async def other_end(number: int) -> str:
    return await show(str(await add(number))) + "!"


@workflow(name="replay.appended")
async def appended(number: int) -> str:
    shown = await show(str(await add(number)))
    return await show(f"{shown}!")


@workflow(name="replay.other_input")
async def other_input(name: str, age: int) -> str:
    return name * age


# -- the comparison -------------------------------------------------------------------------------


@pytest.fixture
def bucket() -> Bucket:
    bodies.clear()
    return Bucket()


async def replayed(bucket: Bucket, code: WorkflowDefinition) -> replaying.Replay:
    """A completed run of `recorded`, compared with other code; nothing may be written."""
    store = Store(MemoryBackend(bucket))
    async with Client(store) as client:
        await client.run(recorded.options(id="x"), 1)
    bodies.clear()
    start = len(bucket.log)
    done = await replaying.compare(store, "x", await reading.load(store, "x"), code)
    assert {verb for verb, _ in bucket.log[start:]} <= {"list", "read"}
    assert bodies == []
    return done


@pytest.mark.anyio
async def test_code_that_fits_replays_to_the_end(bucket: Bucket) -> None:
    """All calls are named in order; how the code is written does not matter."""
    done = await replayed(bucket, same.definition)

    assert done.calls == [("replay%2Eadd.1", "value"), ("replay%2Eshow.1", "value")]
    assert (done.difference, done.unasked) == ("", [])


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("code", "calls", "said", "unasked"),
    [
        (inserted, 1, "which is not recorded, before", ["replay%2Eshow.1"]),
        (dropped, 1, "without having made every recorded call", ["replay%2Eshow.1"]),
        (other_arguments, 0, "other arguments", ["replay%2Eshow.1"]),
        (other_end, 2, "ends otherwise", []),
        (appended, 2, "the run is over", []),
        (other_input, 0, "input does not fit", []),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_it_stops_at_the_first_difference(
    bucket: Bucket,
    code: object,
    calls: int,
    said: str,
    unasked: list[str],
) -> None:
    """Each kind of difference is told, with what was recorded and what is asked now."""
    done = await replayed(bucket, code.definition)  # type: ignore[attr-defined]  # a module made by the test

    assert said in done.difference
    assert len(done.calls) == calls
    assert set(unasked) <= set(done.unasked)
    assert done.end == ""


# -- the command ----------------------------------------------------------------------------------


def test_a_run_in_flight_replays_up_to_its_next_call(cli: Cli, folder: Path) -> None:
    """The end of the record is no difference."""
    cli("start", f"{FLOWS}:quick", "--id", "x", "--input", INPUT)
    before = objects(folder)
    done = cli("replay", "x", "--target", FLOWS, "--json")

    assert done.code == 0
    assert done.document["fits"] is True
    assert "'note.1'" in done.document["end"]
    assert objects(folder) == before


def test_a_finished_run_prints_its_calls(cli: Cli) -> None:
    """A failed one too: its error is replayed, not raised."""
    cli("run", f"{FLOWS}:failing", "--id", "x", "--input", '["closed"]')
    done = cli("replay", "x", "--target", f"{FLOWS}:failing")

    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()[1:3]] == [
        ["note.1", "value", "note.1"],
        ["fail.1", "error", "fail.1"],
    ]


def test_a_difference_exits_with_6(cli: Cli, folder: Path) -> None:
    """Recorded and asked stand side by side; calls never asked for are named."""
    file = folder / "changing.py"
    file.write_text(CODE.format(call="two"))
    cli("run", "changing.py", "--id", "x")
    forget("changing")
    file.write_text(CODE.format(call="three"))
    text = cli("replay", "x", "--target", "changing.py")
    document = cli("replay", "x", "--target", "changing.py", "--json")

    assert (text.code, document.code) == (6, 6)
    assert [line.split() for line in text.out.splitlines()[:3]] == [
        ["RECORDED", "OUTCOME", "ASKED", "NOW"],
        ["one.1", "value", "one.1"],
        ["two.1", "three.1"],
    ]
    assert document.document["fits"] is False
    assert document.document["unasked"] == ["two.1"]
    assert document.document["difference"]["asked"] == "three.1"


CODE = """
from durable import step, workflow

@step
async def one(): ...

@step
async def two(): ...

@step
async def three(): ...

@workflow
async def changing():
    await one()
    await {call}()
"""


def forget(module: str) -> None:
    """As a new process would: the file is read again."""
    del sys.modules[module]


def test_code_that_is_not_there_is_a_usage_error(cli: Cli) -> None:
    """The message names the workflow, the hint what to type."""
    cli("run", f"{FLOWS}:quick", "--id", "x", "--input", INPUT)
    done = cli("replay", "x", "--json")

    assert (done.code, done.error["code"]) == (2, "unknown_workflow")
    assert "quick" in done.error["message"]
    assert "--target" in done.error["hint"]


# -- from a file, to a call, in the debugger ------------------------------------------------------


def test_an_exported_run_replays_without_its_store(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is all that is needed, on another machine too."""
    cli("run", f"{FLOWS}:failing", "--id", "x", "--input", '["closed"]')
    assert cli("export", "x", "x.json").code == 0
    monkeypatch.setenv("DURABLE_STORE", "sqlite:///elsewhere/none.db")

    done = cli("replay", "x.json", "--target", FLOWS, "--json")

    assert done.code == 0
    assert [call["path"] for call in done.document["calls"]] == ["note.1", "fail.1"]
    assert not (folder / "elsewhere").exists()


def test_an_exported_run_is_readable_and_can_be_imported(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values stand in the file as JSON; in another store the run shows the same."""
    cli("run", f"{FLOWS}:quick", "--id", "x", "--input", INPUT)
    cli("export", "x", "x.json")
    assert '"value": "hi"' in (folder / "x.json").read_text()
    before = cli("show", "x", "--json").document
    monkeypatch.setenv("DURABLE_STORE", "sqlite:///other.db")

    done = cli("import", "x.json")

    assert (done.code, done.out) == (0, "x\n")
    assert cli("show", "x", "--json").document == before
    assert [run["run"] for run in cli("list", "--json").document["runs"]] == ["x"]
    assert cli("import", "x.json").code == 4


def test_an_imported_run_that_is_not_over_waits_for_a_word(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody executes it by itself; retried, it goes on."""
    cli("start", f"{FLOWS}:quick", "--id", "x", "--input", INPUT)
    cli("export", "x", "x.json")
    monkeypatch.setenv("DURABLE_STORE", "sqlite:///other.db")

    assert "`durable retry x` lets it go on" in cli("import", "x.json").err
    assert cli("worker", FLOWS, "--until-idle").code == 0
    assert cli("result", "x", "--timeout", "0").code == 8
    assert cli("retry", "x").code == 0
    assert cli("worker", FLOWS, "--until-idle").code == 0
    assert cli("result", "x").out == '{"said":"hi"}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("no json", "holds no exported run"),
        ('{"durable": 1}', "holds no exported run"),
        ("[]", "holds no exported run"),
    ],
)
def test_a_file_that_is_none_is_refused(cli: Cli, folder: Path, content: str, said: str) -> None:
    """Nothing is written for it."""
    (folder / "x.json").write_text(content)

    done = cli("import", "x.json")

    assert done.code == 2
    assert said in done.err
    assert cli("import", "absent.json").code == 2


def test_a_file_cannot_write_outside_its_run(cli: Cli, folder: Path) -> None:
    """A name that leaves the run's folder, or is no fact of a run, is refused."""
    cli("run", f"{FLOWS}:quick", "--id", "x", "--input", INPUT)
    cli("export", "x", "x.json")
    whole = (folder / "x.json").read_text()
    for name in ("../../../other/start", "steps/../../y"):
        (folder / "bad.json").write_text(whole.replace('"name": "result"', f'"name": "{name}"'))
        done = cli("import", "bad.json")
        assert (done.code, "names an object that no run has" in done.err) == (2, True)


def test_a_later_format_is_refused(cli: Cli, folder: Path) -> None:
    """The message says which format the file has."""
    cli("run", f"{FLOWS}:quick", "--id", "x", "--input", INPUT)
    cli("export", "x", "x.json")
    newer = (folder / "x.json").read_text().replace('"durable": 1', '"durable": 2')
    (folder / "x.json").write_text(newer)

    assert "has format 2" in cli("import", "x.json").err


def test_a_replay_stops_at_a_call(cli: Cli) -> None:
    """What comes behind it is not asked for, and is no difference."""
    cli("run", f"{FLOWS}:failing", "--id", "x", "--input", '["closed"]')

    done = cli("replay", "x", "--target", FLOWS, "--until", "note.1")

    assert done.code == 0
    assert "fits up to 'note.1'" in done.out
    assert "fail.1" not in done.out


@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("where", [["--until", "note"], []])
def test_the_debugger_opens_in_the_workflow(folder: Path, where: list[str], kind: str) -> None:
    """At the call that is named, or where the code parts from the record; in its own thread if
    it is sync. From there it goes on line by line.
    """
    debugged = DEBUGGED if kind == "async" else re.sub("async |await ", "", DEBUGGED)
    (folder / "flow.py").write_text(debugged.format(call="note(word)"))
    durable("run", "flow.py", "--id", "x", "--input", '["hi"]', folder=folder)
    if not where:
        (folder / "flow.py").write_text(debugged.format(call="note(word + word)"))
    given = "p word\n" + ("n\np told\n" if where else "") + "c\n"

    done = durable(
        "replay", "x", "--target", "flow.py", "--pdb", *where, folder=folder, given=given
    )

    assert "'hi'" in done.out
    assert ("'told hi'" in done.out) == bool(where)
    assert re.search(r"flow\.py\(1[01]\)noted\(\)", done.out)
    assert done.code == (0 if where else 6)


DEBUGGED = """
from durable import step, workflow

@step
async def note(word: str) -> str:
    return word

@workflow
async def noted(word: str) -> str:
    said = await {call}
    told = "told " + said
    return told
"""


# -- all runs -------------------------------------------------------------------------------------


def test_every_live_run_is_checked_before_a_deploy(folder: Path) -> None:
    """Runs that today's code would strand are listed, and the exit code is not 0."""
    every = ("replay", "--all", "--target", "changing.py")
    (folder / "changing.py").write_text(CODE.format(call="two"))
    durable("run", "changing.py", "--id", "done", folder=folder)
    durable("start", "changing.py", "--id", "open", folder=folder)
    fits = durable(*every, "--status", "completed", folder=folder)
    assert (fits.code, fits.out) == (0, "1 runs, 0 of them do not fit this code\n")
    (folder / "changing.py").write_text(CODE.format(call="three"))

    done = durable(*every, "--status", "completed", "--json", folder=folder)
    live = durable(*every, "--json", folder=folder)

    assert done.code == 6
    assert [(run["run"], run["fits"]) for run in done.document["runs"]] == [("done", False)]
    assert live.code == 0
    assert [run["run"] for run in live.document["runs"]] == ["open"]


VERSIONED = """
from durable import workflow

@workflow(name="versioned", version="{version}", pinned=True)
async def versioned() -> str: ...
"""


def test_a_pinned_run_is_stranded_by_code_without_its_version(folder: Path) -> None:
    """It is told before the deploy, as a run of a workflow that is not there would be."""
    file, every = folder / "versioned.py", ("replay", "--all", "--target", "versioned.py")
    file.write_text(VERSIONED.format(version="1"))
    durable("start", "versioned.py", "--id", "old", folder=folder)
    assert durable(*every, folder=folder).code == 0

    file.write_text(VERSIONED.format(version="2.0"))
    stranded = durable(*every, folder=folder)
    assert stranded.code == 6
    assert "pinned to version '1', which no target defines" in stranded.out

    both = VERSIONED.format(version="1").replace("def versioned", "def old")
    file.write_text(both + VERSIONED.format(version="2.0"))
    assert durable(*every, folder=folder).code == 0


WAITS = """
from durable import step, workflow
import anyio

@workflow
async def waits() -> None:
    await anyio.sleep_forever()
"""


def test_code_that_waits_for_ever_keeps_no_other_run_waiting(folder: Path) -> None:
    """It is listed as what cannot be told; the other runs are compared."""
    (folder / "waits.py").write_text(WAITS)
    (folder / "changing.py").write_text(CODE.format(call="two"))
    targets = ("--target", "waits.py", "--target", "changing.py")
    durable("start", "changing.py", "--id", "first", folder=folder)
    durable("start", "waits.py", "--id", "stuck", folder=folder)
    durable("start", "changing.py", "--id", "last", folder=folder)

    done = durable("replay", "--all", *targets, "--timeout", LIMIT, "--json", folder=folder)

    runs = {run["run"]: run for run in done.document["runs"]}
    assert done.code == 6
    assert {run: said["fits"] for run, said in runs.items()} == {
        "first": True, "stuck": False, "last": True,
    }  # fmt: skip
    assert f"not over after {LIMIT}" in runs["stuck"]["difference"]


STANDS = """
import threading
from durable import step, workflow
import anyio

@step
async def one() -> None: ...

async def ask_elsewhere() -> None:
    await anyio.sleep_forever()  # here

@workflow
async def stands() -> None:
    await one()
    if {waits}:
        await ask_elsewhere()

@step
def plain() -> None: ...

@workflow
def blocks() -> None:
    plain()
    if {waits}:
        threading.Event().wait()

@workflow
async def computes() -> None:
    await one()
    while {waits}:
        pass

@workflow
async def swallows() -> None:
    await one()
    while {waits}:
        try:
            await ask_elsewhere()
        except BaseException:
            pass
"""


@pytest.mark.parametrize(
    ("flow", "call", "where"),
    [
        ("stands", "one.1", ", at stands.py:10"),
        ("blocks", "plain.1", ""),
        ("computes", "one.1", ", at stands.py:"),
        ("swallows", "one.1", ", at stands.py:10"),
    ],
)
def test_a_replay_that_does_not_come_on_says_where_it_stands(
    folder: Path, flow: str, call: str, where: str
) -> None:
    """The last call that was handed over, and of async code the line; it ends with 6."""
    (folder / "stands.py").write_text(STANDS.format(waits="False"))
    assert durable("run", f"stands.py:{flow}", "--id", "x", folder=folder).code == 0
    (folder / "stands.py").write_text(STANDS.format(waits="True"))

    done = durable(
        "replay", "x", "--target", "stands.py", "--timeout", LIMIT, "--json", folder=folder
    )

    assert done.code == 6
    assert [call["path"] for call in done.document["calls"]] == [call]
    assert done.document["difference"]["message"].startswith(
        f"unknown: the replay of run 'x' was not over after {LIMIT}; after call {call!r} the code "
        f"waits for something that is not durable, or computes{where}"
    )


PURGES = """
import subprocess, sys
from durable import workflow

@workflow
async def purges() -> None:
    subprocess.run([sys.executable, "-m", "durable.cli", "purge", "gone", "--force"], check=True)
"""


def test_a_run_that_is_purged_meanwhile_is_passed_over(folder: Path) -> None:
    """It was listed, but is no more when its turn comes: that is no difference, and no error."""
    (folder / "purges.py").write_text(PURGES)
    (folder / "changing.py").write_text(CODE.format(call="two"))
    for target, run in (("changing.py", "stays"), ("changing.py", "gone"), ("purges.py", "first")):
        durable("start", target, "--id", run, folder=folder)
    targets = ("--target", "purges.py", "--target", "changing.py")

    done = durable("replay", "--all", *targets, folder=folder)

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "2 runs, 0 of them do not fit this code"


ENDED = """
import anyio
from durable import sleep, step, workflow

@step
async def one() -> None: ...

@workflow(timeout="1ms")
async def late() -> None:
    await one()

@step(undo=one)
async def kept() -> None: ...

@step
async def endless() -> None:
    await anyio.sleep_forever()

@workflow(timeout="500ms")
async def undone() -> None:
    await kept()
    await endless()

@workflow
async def cancelled() -> None:
    await one()
    await sleep("1h")

@workflow(singleton="k", on_conflict="skip")
async def skipped() -> None:
    await sleep("1h")

@workflow(singleton="k", on_conflict="raise")
async def refused() -> None:
    await sleep("1h")
"""


def test_runs_that_their_own_code_did_not_end_fit(folder: Path) -> None:
    """Out of time, cancelled before they began, or kept off by a singleton: the calls that they
    did not come to are no difference, nor is what was undone.
    """
    (folder / "ended.py").write_text(ENDED)
    runs = ("late", "cancelled", "skipped", "refused", "undone")
    for run in ("refused", "late", "cancelled", "skipped"):
        durable("start", f"ended.py:{run}", "--id", run, folder=folder)
    durable("start", "ended.py:skipped", "--id", "holder", folder=folder)
    durable("cancel", "cancelled", folder=folder)
    assert durable("worker", "ended.py", "--until-idle", folder=folder).code == 0
    durable("run", "ended.py:undone", "--id", "undone", folder=folder)
    over = [
        run["run"]
        for run in durable("list", "--json", folder=folder).document["runs"]
        if run["ended"] is not None
    ]
    assert len(over) == len(runs)  # of those that want the lock one has it

    for run in over:
        done = durable("replay", run, "--target", "ended.py", folder=folder)
        assert (done.code, done.out.count("up to where the run was ended, before")) == (0, 1)


def test_all_runs_are_counted_by_a_bar(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step for each run, so that a long check shows how far it is."""
    for run in "abc":
        cli("start", f"{FLOWS}:quick", "--id", run, "--input", INPUT)
    seen: list[object] = []

    @contextlib.contextmanager
    def counted(word: str, total: int, *, silent: bool) -> Iterator[Callable[[], None]]:
        seen.append((word, total, silent))
        yield lambda: seen.append("one")

    monkeypatch.setattr(selecting, "progress", counted)

    assert cli("replay", "--all", "--target", FLOWS).code == 0
    assert seen == [("replay", 3, False), "one", "one", "one"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("x", "--all"), "RUN goes with one run, not with --all"),
        (("--all", "--until", "note"), "--until goes with one run"),
        (("--all", "--pdb"), "--pdb goes with one run"),
        (("x", "--status", "failed"), "--status goes with --all"),
        (("x", "--workflow", "quick"), "--workflow goes with --all"),
        (("x", "--pdb", "--timeout", "1s"), "--pdb takes no --timeout"),
    ],
)
def test_one_run_and_all_do_not_mix(cli: Cli, words: tuple[str, ...], said: str) -> None:
    """What would be passed over is refused instead."""
    done = cli("replay", *words, "--target", FLOWS)

    assert done.code == 2
    assert said in done.err


def test_a_replay_needs_a_run(cli: Cli) -> None:
    """Neither a run nor --all is an error that shows both."""
    done = cli("replay", "--target", FLOWS)

    assert done.code == 2
    assert "--all" in done.err


def test_a_call_that_is_not_there_cannot_be_stopped_at(cli: Cli) -> None:
    """Else a slip of the pen would look like a replay that fits."""
    cli("run", f"{FLOWS}:quick", "--id", "x", "--input", INPUT)

    done = cli("replay", "x", "--target", FLOWS, "--until", "nothing")

    assert (done.code, done.out) == (3, "")
    assert "has recorded no call 'nothing'" in done.err


def test_leaving_the_debugger_is_no_difference(folder: Path) -> None:
    """The replay ends there; nothing is said of what it did not come to."""
    (folder / "flow.py").write_text(DEBUGGED.format(call="note(word)"))
    durable("run", "flow.py", "--id", "x", "--input", '["hi"]', folder=folder)

    done = durable(
        "replay", "x", "--target", "flow.py", "--pdb", "--until", "note", folder=folder, given="q\n"
    )

    assert done.code == 0
    assert done.out.endswith("the debugger was left, and the replay with it\n")
    assert "difference" not in done.out


def test_an_export_says_what_it_wrote(cli: Cli, folder: Path) -> None:
    """How much, and where to."""
    cli("run", f"{FLOWS}:quick", "--id", "x", "--input", INPUT)

    assert cli("export", "x", "x.json").out == "x: 2 objects, in x.json\n"
    said = cli("export", "x", "y.json", "--json").document
    assert said == {"run": "x", "file": "y.json", "objects": 2}
    assert (folder / "y.json").exists()


PRINTS = """
from durable import step, workflow

print("loaded")

@step
async def one() -> None: ...

@workflow
async def prints() -> None:
    print("a workflow")
    await one()
"""


def test_what_code_prints_is_no_part_of_the_document(folder: Path) -> None:
    """Nor when its module is loaded: with --json standard output is the one document."""
    (folder / "prints.py").write_text(PRINTS)
    durable("run", "prints.py", "--id", "x", folder=folder)

    for words in (("replay", "x"), ("replay", "--all")):
        done = durable(*words, "--target", "prints.py", "--json", folder=folder)
        assert (done.code, bool(done.document)) == (0, True)
    sent = durable("send", "x", "go", "--target", "prints.py", "--json", folder=folder)
    assert sent.document["answer"] == "finished"
    assert durable("export", "x", "-", "--json", folder=folder).document["run"] == "x"
