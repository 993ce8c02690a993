"""Fleets of worker processes: labels, several processes, rolling restarts that lose nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import facts
from tests.cli.command import FLOWS, PROGRAM, Done, begin, durable, objects, until
from tests.commands import environment

Cli = Callable[..., Done]

FLEET = """
import os
from pathlib import Path
import anyio
from durable import step, workflow

@step
async def note(number: int) -> int:
    with open("notes", "a") as file:
        file.write(f"{number} {os.getpid()}\\n")
    while not (Path("go").exists() or Path(f"go-{os.getpid()}").exists()):
        await anyio.sleep(0.01)  # real: the pace of looking for a file
    return number

@workflow
async def count(number: int) -> int:
    return sum([await note.call(number) for _ in range(3)])

@workflow(label="gpu")
async def train(number: int) -> int:
    return await note.call(number)

@workflow
async def pipeline(number: int) -> int:
    child = await train.start(number)
    return await child.result()
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are killed at the end, whatever the test did."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate(timeout=20)


def start(flow: str, number: int, folder: Path, *more: str) -> None:
    words = ("--id", f"c{number}", "--input", f"[{number}]", *more)
    done = durable("start", f"{flow}:count", *words, folder=folder)
    assert done.code == 0, done.err


def notes(folder: Path) -> list[list[str]]:
    """The number and the process of each body that has begun."""
    file = folder / "notes"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def flow(folder: Path) -> str:
    (folder / "fleet.py").write_text(FLEET)
    return "fleet.py"


def test_a_label_keeps_a_workflow_from_other_workers(cli: Cli, folder: Path, flow: str) -> None:
    """Without the label it is left, and shown as waiting with the reason; with it, it is run."""
    (folder / "go").touch()
    durable("start", f"{flow}:train", "--id", "t", "--input", "[1]", folder=folder)
    durable("worker", flow, "--until-idle", folder=folder)
    waiting = cli("show", "t", "--json").document
    done = durable("worker", flow, "--label", "gpu", "--until-idle", folder=folder)

    assert waiting["status"] == "waiting"
    assert done.code == 0
    assert cli("result", "t").out == "1\n"


@pytest.mark.parametrize("workflow", ["train", "pipeline"])
def test_a_run_that_waits_for_a_label_says_so(
    cli: Cli, folder: Path, flow: str, started: list[subprocess.Popen[str]], workflow: str
) -> None:
    """While the workers that live lack it: of the run, of a child, by itself and in lists."""
    durable("start", f"{flow}:{workflow}", "--id", "t", "--input", "[1]", folder=folder)
    worker = begin("worker", flow, folder=folder)
    started.append(worker)
    until(worker, "serves count, pipeline", stream="stderr")
    why = "no live worker knows workflow 'train', or has the label 'gpu' that it needs"

    def waiting() -> dict[str, str]:
        runs = cli("list", "--json").document["runs"]
        return {r["reason"]: r["run"] for r in runs if r["workflow"] == "train"}

    facts.until(lambda: why in waiting())
    shown = cli("show", waiting()[why], "--json").document
    assert (shown["status"], shown["reason"]) == ("waiting", why)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--processes", "0"), "--processes must be at least 1"),
        (("--concurrency", "0"), "--concurrency must be at least 1"),
        (("--queues", "a,,b"), "the queue is empty"),
        (("--label", ""), "the label is empty"),
        (("--label", "a\nb"), "the label 'a\\nb' has control characters"),
        (("--process", "2"), "--process"),  # no abbreviations: the processes would not know it
    ],
)
def test_fleets_that_cannot_be(cli: Cli, flow: str, words: tuple[str, str], said: str) -> None:
    """Refused before anything is served."""
    done = cli("worker", flow, "--until-idle", *words)

    assert (done.code, said in done.err) == (2, True), done.err


def test_queues_labels_and_processes_together(cli: Cli, folder: Path, flow: str) -> None:
    """Two queues, two processes of two places each, one label; the third queue is left."""
    (folder / "go").touch()
    for number, queue in enumerate("ababc"):
        start(flow, number, folder, "--queue", queue)
    words = ("--id", "t", "--queue", "b", "--input", "[9]")
    durable("start", f"{flow}:train", *words, folder=folder)
    fleet = ("--queues", "a,b", "--concurrency", "2", "--processes", "2", "--label", "gpu")
    done = durable("worker", flow, *fleet, "--until-idle", folder=folder)
    runs = {r["run"]: r["status"] for r in cli("list", "--json").document["runs"]}

    assert done.code == 0, done.err
    assert runs.pop("c4") == "waiting"
    assert runs == dict.fromkeys(("c0", "c1", "c2", "c3", "t"), "completed")


def test_a_fleet_takes_the_place_of_a_fleet(
    cli: Cli, folder: Path, flow: str, started: list[subprocess.Popen[str]]
) -> None:
    """The old one hands over while the new one comes, and one of its processes is killed."""
    for number in range(4):
        start(flow, number, folder)

    def fleet() -> subprocess.Popen[str]:
        process = begin("worker", flow, "--processes", "2", "--concurrency", "2", folder=folder)
        started.append(process)
        until(process, "serves count, pipeline", stream="stderr")
        return process

    old = fleet()
    facts.until(lambda: len(notes(folder)) == 4)
    new = fleet()
    killed, survivor = {pid for _, pid in notes(folder)}
    os.kill(int(killed), signal.SIGKILL)
    old.send_signal(signal.SIGTERM)
    (folder / f"go-{survivor}").touch()
    old.communicate(timeout=30)
    (folder / "go").touch()
    for number in range(4):
        result = cli("result", f"c{number}", "--timeout", "40s")
        assert result.out == f"{3 * number}\n", result.err
    new.send_signal(signal.SIGTERM)
    new.communicate(timeout=30)

    assert (old.returncode, new.returncode) == (0, 0)
    assert [name for name in objects(folder) if name.startswith("live/")] == []


def test_why_a_run_waits(cli: Cli, folder: Path, started: list[subprocess.Popen[str]]) -> None:
    """No live worker; then one that lacks the workflow: each is said."""
    cli("start", f"{FLOWS}:quick", "--id", "x", "--input", '{"word": "hi"}')
    nobody = cli("show", "x", "--json").document["reason"]
    worker = begin("worker", f"{FLOWS}:three", folder=folder)
    started.append(worker)
    until(worker, "serves three", stream="stderr")

    def reason() -> str:
        return str(cli("show", "x", "--json").document["reason"])

    assert nobody == "no live worker"
    facts.until(lambda: reason() == "no live worker knows workflow 'quick'")


def test_several_processes_share_the_work(
    cli: Cli, folder: Path, flow: str, started: list[subprocess.Popen[str]]
) -> None:
    """`--processes 2` runs two workers, and ends when nothing is left."""
    for number in range(3):
        start(flow, number, folder)
    words = ("--processes", "2", "--concurrency", "1", "--until-idle")
    fleet = begin("worker", flow, *words, folder=folder)
    started.append(fleet)
    facts.until(lambda: len({process for _, process in notes(folder)}) == 2)
    (folder / "go").touch()
    fleet.communicate(timeout=50)

    assert fleet.returncode == 0
    assert cli("result", "c2").out == "6\n"


def test_a_rolling_restart_loses_nothing(
    cli: Cli, folder: Path, flow: str, started: list[subprocess.Popen[str]]
) -> None:
    """Each worker is replaced in turn, one of them killed: every run ends."""
    for number in range(4):
        start(flow, number, folder)

    def worker() -> subprocess.Popen[str]:
        process = begin("worker", flow, "--concurrency", "2", folder=folder)
        started.append(process)
        until(process, "serves count, pipeline", stream="stderr")
        return process

    def is_at_work(process: subprocess.Popen[str]) -> bool:
        return sum(pid == str(process.pid) for _, pid in notes(folder)) == 2

    first, second = worker(), worker()
    facts.until(lambda: is_at_work(first) and is_at_work(second))
    third = worker()
    first.send_signal(signal.SIGTERM)
    (folder / f"go-{first.pid}").touch()
    assert first.wait(timeout=30) == 0
    second.kill()
    fourth = worker()
    (folder / "go").touch()
    for number in range(4):
        result = cli("result", f"c{number}", "--timeout", "40s")
        assert result.out == f"{3 * number}\n", result.err
    for process in (third, fourth):
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0

    ran = Counter(number for number, _ in notes(folder))
    extra = {number: ran[str(number)] - 3 for number in range(4)}
    assert all(more >= 0 for more in extra.values())
    assert sum(extra.values()) == 2  # bodies in flight when a worker was killed run again


PRINTS = """
from durable import step, workflow

print("loaded")

@step
def one() -> None:
    print("a step")

@workflow
def prints() -> None:
    print("a workflow")
    one()
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_with_json_a_fleet_prints_one_document(folder: Path, processes: int) -> None:
    """Of all its workers, whatever their code prints, which goes to standard error."""
    (folder / "prints.py").write_text(PRINTS)
    durable("start", "prints.py", folder=folder)
    words = ("--processes", str(processes), "--until-idle", "--json")

    done = durable("worker", "prints.py", *words, folder=folder)

    assert done.code == 0, done.err
    workers = [done.document] if processes == 1 else done.document["workers"]
    assert len({worker["worker"] for worker in workers}) == processes
    assert all(worker.keys() == {"worker", "label", "parked"} for worker in workers)
    assert {"loaded", "a workflow", "a step"} <= set(done.err.splitlines())


STRIKES = """
import os, signal, sys

def strike(event: str, args: object) -> None:
    if event == "subprocess.Popen" and not struck:
        struck.append(True)
        os.kill(os.getpid(), signal.SIGTERM)

struck: list[bool] = []
sys.addaudithook(strike)
"""


def test_a_fleet_that_is_stopped_while_it_starts_leaves_nobody(folder: Path, flow: str) -> None:
    """Asked to end between two of its processes, it ends all of them."""
    (folder / "sitecustomize.py").write_text(STRIKES)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    words = ("worker", flow, "--processes", "2")
    fleet = subprocess.run(
        [*PROGRAM, *words], cwd=folder, env={**environment(), "PYTHONPATH": path},
        timeout=50, check=False,
    )  # fmt: skip

    assert fleet.returncode == 0


def test_lines_of_workers_that_share_a_stream_are_whole(folder: Path) -> None:
    """Each goes out in one write: between two, another process's line would land."""
    (folder / "prints.py").write_text(PRINTS)
    durable("start", "prints.py", folder=folder)
    here, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)  # a write is a message
    words = ("worker", "prints.py", "--processes", "2", "--until-idle", "--json")
    with (
        here,
        subprocess.Popen(
            [*PROGRAM, *words], cwd=folder, env=environment(), stdout=theirs, stderr=theirs
        ) as fleet,
    ):
        theirs.close()
        said = list(iter(partial(here.recv, 65536), b""))

    assert fleet.returncode == 0, said
    assert Counter(said)[b"loaded\n"] == 2
    assert {b"a workflow\n", b"a step\n"} <= set(said)
    assert [line for line in said if line.find(b"\n") != len(line) - 1] == []
