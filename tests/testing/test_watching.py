"""Warnings of what workflows do that a replay would do otherwise, or again."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import logging
import mimetypes
import os
import random  # what a workflow should not use
import socket
import subprocess
import sys
import threading
import time
import warnings
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import durable
from durable import gather, map, step, sync, workflow
from durable.errors import NeverAwaited, NotRepeatable, RunFailed
from durable.testing import environment, run

pytestmark = pytest.mark.filterwarnings("always")


def looks() -> str:
    return Path(__file__).read_text()[:1]


def connects() -> None:
    with socket.socket() as plain, pytest.raises(OSError):  # nobody listens there
        plain.connect(("127.0.0.1", 1))


def forks() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def threads() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


@step(name="watched.charge")
async def charge(order: str = "") -> str:
    looks()
    return order


@workflow(name="watched.itself")
async def itself(act: str) -> None:
    globals()[act]()


@workflow(name="watched.plain")
def plain(act: str) -> None:
    globals()[act]()


@workflow(name="watched.branches")
async def branches(act: str) -> None:
    async def branch() -> None:
        globals()[act]()

    async def of(_item: int) -> None:
        globals()[act]()

    await gather(branch(), charge())
    await map(of, [1])


@workflow(name="watched.inline")
async def inline(act: str) -> None:
    await itself(act)


@pytest.fixture
def said(recwarn: pytest.WarningsRecorder) -> Callable[[], list[tuple[str, str, str]]]:
    """The codes, what was found, and the lines that were warned of."""

    def read() -> list[tuple[str, str, str]]:
        found = [w for w in recwarn.list if issubclass(w.category, NotRepeatable)]
        assert {Path(w.filename).name for w in found} <= {Path(__file__).name}
        lines = Path(__file__).read_text().splitlines()
        said = []
        for warned in found:
            code, what = str(warned.message).split(" in a workflow")[0].split(": ", 1)
            said.append((code, what, lines[warned.lineno - 1].strip()))
        return said

    return read


@pytest.mark.parametrize("flow", [itself, plain, branches, inline], ids=lambda flow: flow.name)
@pytest.mark.parametrize(
    ("act", "code", "what"),
    [
        ("looks", "DUR005", "opening a file"),
        ("connects", "DUR004", "a connection"),
        ("forks", "DUR006", "starting a process"),
        pytest.param(
            "threads",
            "DUR006",
            "starting a thread",
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="Python does not tell"),
        ),
    ],
)
def test_a_workflow_that_does_it_itself_is_warned_of(
    flow: Any, act: str, code: str, what: str, said: Any
) -> None:
    """With the code of the rule and the line of the workflow's file, in every kind of workflow."""
    run(flow, act)

    found = [(code, what) for code, what, _line in said()]
    assert (code, what) in found
    assert {c for c, _what in found} <= {code, "DUR006"}  # a process may take a thread


@workflow(name="watched.innocent")
async def innocent() -> list[str]:
    import wave  # noqa: F401  # reading code is no file of the workflow's

    logging.getLogger("watched").info("said")
    return [await charge(), *await map(charge, ["a", "b"])]


def test_what_steps_and_durable_do_is_not_warned_of(said: Any) -> None:
    """Steps open files, durable starts threads, imports read code: all that is right."""
    sys.modules.pop("wave", None)

    assert run(innocent) == ["", "a", "b"]

    assert said() == []


def reads_zones() -> None:
    zoneinfo.ZoneInfo.no_cache("Europe/Paris")


def reads_a_version() -> None:
    importlib.metadata.version("anyio")


def reads_a_resource() -> None:
    folder = importlib.resources.files("anyio")
    assert folder.joinpath("py.typed") in list(folder.iterdir())
    folder.joinpath("py.typed").read_bytes()


def reads_types_of_files() -> None:
    mimetypes.init()


@pytest.mark.parametrize("flow", [itself, plain], ids=lambda flow: flow.name)
@pytest.mark.parametrize(
    "act", ["reads_zones", "reads_a_version", "reads_a_resource", "reads_types_of_files"]
)
def test_reading_what_is_installed_is_not_warned_of(flow: Any, act: str, said: Any) -> None:
    """Zones, versions and data of packages are otherwise on a replay only if the code is."""
    run(flow, act)

    assert said() == []


@workflow(name="watched.read")
async def read() -> list[float]:
    begun = [time.time(), random.random()]
    words = {"a", "b"}
    for word in words:
        await charge(word)
    return begun


def test_clocks_and_chance_are_read_from_the_source(said: Any) -> None:
    """Python tells nobody of them while they are used; tests read the workflow that they start."""
    run(read)

    assert [(code, line) for code, _what, line in said()] == [
        ("DUR001", "begun = [time.time(), random.random()]"),
        ("DUR002", "begun = [time.time(), random.random()]"),
        ("DUR008", "for word in words:"),
    ]


@workflow(name="watched.unordered")
async def unordered(words: list[str]) -> list[str]:
    return sorted(await map(charge, set(words) if words else frozenset()))


@workflow(name="watched.unordered plainly")
def unordered_plainly(words: list[str]) -> list[str]:
    return sorted(sync.map(charge, set(words)))


@pytest.mark.parametrize("flow", [unordered, unordered_plainly], ids=lambda flow: flow.name)
def test_a_set_that_drives_calls_is_warned_of(flow: Any, said: Any) -> None:
    """Its order may be another one on a replay, in another process."""
    assert run(flow, ["a", "b"]) == ["a", "b"]

    lines = [line for code, what, line in said() if what.startswith("map over a set")]
    assert len(lines) == 1
    assert "map(charge" in lines[0]


@workflow(name="watched.forgetful")
async def forgetful() -> None:
    charge("a")  # type: ignore[unused-coroutine]  # as the test wants it
    await charge("b")
    raise LookupError("not there")


def test_calls_that_were_never_awaited_are_told_of_when_the_workflow_raises() -> None:
    """They may be the reason; if it returns instead, that is an error of its own."""
    with (
        pytest.warns(NeverAwaited, match=r"not executed: watched%2Echarge\.1$"),
        pytest.raises(RunFailed),
    ):
        run(forgetful)


def test_the_error_of_the_workflow_comes_first() -> None:
    """Where the warning is made an error, it is a note on that of the workflow."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeverAwaited)
        with pytest.raises(RunFailed) as failed:
            run(forgetful)

    assert isinstance(failed.value.__cause__, LookupError)
    assert "not executed: watched%2Echarge.1" in failed.value.__cause__.__notes__[0]


def test_a_project_can_make_errors_of_them() -> None:
    """Filtered as any warning: the line that does it raises."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "DUR005", NotRepeatable)
        with environment() as env:
            with pytest.raises(RunFailed) as failed:
                env.client.run(itself, "looks")
            assert isinstance(failed.value.__cause__, durable.errors.StepFailed | NotRepeatable)


def test_it_is_said_once_for_a_place(recwarn: pytest.WarningsRecorder) -> None:
    """As Python does with warnings by default, however many runs come by."""
    warnings.simplefilter("default")
    with environment() as env:
        for _ in range(3):
            env.client.run(itself, "looks")

    assert len([w for w in recwarn.list if issubclass(w.category, NotRepeatable)]) == 1


WATCHED = """
import pathlib
from durable import workflow

@workflow
async def looking() -> int:
    return len(pathlib.Path("looking.py").read_text()[:1])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "looking.py").write_text(WATCHED)
    return tmp_path


@pytest.mark.parametrize(("setting", "shown"), [(None, 1), ("0", 0), ("1", 1)])
def test_durable_run_watches(folder: Path, setting: str | None, shown: int) -> None:
    """Unless DURABLE_WATCH=0 says no."""
    given = {} if setting is None else {"DURABLE_WATCH": setting}
    source = str(Path(durable.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "durable.cli", "run", "looking.py"],
        cwd=folder, env={**os.environ, "PYTHONPATH": source, **given},
        capture_output=True, text=True, check=True, timeout=50,
    )  # fmt: skip

    assert done.stderr.count("NotRepeatable: DUR005") == shown
