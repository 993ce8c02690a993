"""Public bug reports about stuck runs and ids that are taken, as trials of the command line."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from durable.store.opening import open_store
from tests.cli.command import FLOWS, Done, begin, durable, until
from tests.crash.store import StoreFile

Cli = Callable[..., Done]

THREE = f"{FLOWS}:three"
MENDABLE = f"{FLOWS}:mendable"
INPUT = '{"word": "hi"}'


@pytest.fixture
def stuck(cli: Cli, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A worker with a lease of an hour, in the second step of run `x`."""
    cli("start", THREE, "--id", "x", "--input", INPUT)
    worker = begin("worker", FLOWS, "--ttl", "1h", folder=folder)
    try:
        until(worker, "gate go")
        yield worker
    finally:
        worker.kill()
        worker.communicate(timeout=20)


def finished(cli: Cli, folder: Path) -> list[tuple[int, str]]:
    """Another worker finishes the run; its owners from the second on."""
    (folder / "go").touch()
    assert durable("worker", FLOWS, "--until-idle", folder=folder).code == 0
    shown = cli("show", "x", "--json").document
    assert shown["status"] == "completed"
    return [(epoch["epoch"], epoch["why"]) for epoch in shown["epochs"]]


def stop_between_writes(process: subprocess.Popen[str], folder: Path) -> None:
    """Stopped in the middle of a commit it would keep the store from everybody."""
    store = StoreFile(folder / ".durable" / "durable.db")
    stopped = False
    while not stopped:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # all its threads
        stopped = not store.is_locked()
        if not stopped:
            process.send_signal(signal.SIGCONT)
    store.close()


def test_b19_a_run_of_a_killed_worker_is_freed_by_its_id(
    cli: Cli, folder: Path, stuck: subprocess.Popen[str]
) -> None:
    """Nothing but the id is needed, and nobody waits for the hour of the lease.

    B19, hashicorp/terraform#17592.
    """
    stuck.kill()
    stuck.wait(timeout=20)

    freed = cli("release", "x")

    assert (freed.code, freed.err) == (0, "")
    assert [number for number, _why in finished(cli, folder)] == [2]


def test_b19_a_live_holder_is_fenced_by_force_alone(
    cli: Cli, folder: Path, stuck: subprocess.Popen[str]
) -> None:
    """Refused while it lives; forced, the next owner has a higher epoch, and what the old one
    does when it goes on again changes nothing.

    B19, hashicorp/terraform#17592.
    """
    stop_between_writes(stuck, folder)

    refused = cli("release", "x")
    assert refused.code != 0
    assert "--force" in refused.err
    assert cli("release", "x", "--force").code == 0
    assert [number for number, _why in finished(cli, folder)] == [2]

    before = cli("show", "x", "--json").document
    stuck.send_signal(signal.SIGCONT)
    stuck.terminate()  # it may do what it wants to do, and ends
    stuck.communicate(timeout=20)
    assert cli("show", "x", "--json").document == before


@pytest.mark.parametrize(
    ("verb", "bodies"), [("retry", []), ("restart", ["note first"]), ("fork", [])]
)
def test_b100_a_failed_id_is_tried_again_by_explicit_verbs(
    cli: Cli, folder: Path, verb: str, bodies: list[str]
) -> None:
    """Starting it again gives the failed run and says so; retry, restart and fork go on at once.

    B100, python-arq/arq#531.
    """
    assert cli("run", MENDABLE, "--id", "x", "--input", INPUT).code == 1
    (folder / "mended").touch()
    for _ in range(2):
        again = cli("start", MENDABLE, "--id", "x", "--input", INPUT)
        assert again.out == "x\n"
        assert cli("show", "x", "--json").document["status"] == "failed"

    run = "y" if verb == "fork" else "x"
    more = ("--from", "mend.1", "--id", "y") if verb == "fork" else ()
    assert cli(verb, "x", *more).code == 0
    done = cli("run", MENDABLE, "--id", run, "--input", INPUT)
    assert done.code == 0
    assert [line for line in done.out.splitlines() if line == "note first"] == bodies
    assert cli("show", run, "--json").document["status"] == "completed"


class Hostile:
    """Unpickled, it makes a file."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("owned"),)


async def put(folder: Path, name: str, body: bytes) -> None:
    """In the place of a recorded outcome."""
    store = open_store(f"sqlite:///{folder}/.durable/durable.db")
    try:
        there = [stored async for stored in store.list("runs/") if stored.name.endswith(name)]
        assert await store.delete(there[0].name, there[0].generation)
        await store.create(there[0].name, body, nonce="stranger")
    finally:
        await store.aclose()


@pytest.mark.parametrize("protocol", [0, 5])
def test_b107_a_pickle_in_the_place_of_an_outcome_runs_nothing(
    cli: Cli, folder: Path, stuck: subprocess.Popen[str], protocol: int
) -> None:
    """It is not unpickled: the object is named, and the run is parked for a human.

    B107, Netflix/metaflow#3254.
    """
    stuck.kill()
    stuck.wait(timeout=20)
    anyio.run(put, folder, "steps/note.1", pickle.dumps(Hostile(), protocol))
    (folder / "go").touch()

    assert durable("worker", FLOWS, "--until-idle", folder=folder).code == 0
    shown = cli("show", "x", "--json").document
    assert shown["status"] == "needs-attention"
    assert "steps/note.1" in shown["reason"]
    assert not (folder / "owned").exists()
