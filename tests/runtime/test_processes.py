"""Bodies in child processes: real ones, which can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from durable import testing
from durable.decorators import step
from durable.errors import (
    Fatal,
    InvalidArguments,
    InvalidDefinition,
    NotInWorkflow,
    ProcessDied,
    StepTimeout,
    UnencodableResult,
)
from durable.runtime.closing import Closing, Finished
from durable.runtime.execution import Execution
from tests.commands import ROOT, environment
from tests.facts import SECONDS_MAX, ignores, is_alive, until
from tests.runtime import crunching, runs  # not `Run`: no store matters here
from tests.runtime.by_hand import ClockByHand
from tests.runtime.clocks import BACKENDS, run_with_threads
from tests.runtime.crunching import Odd, Point

backends = pytest.mark.parametrize("backend", BACKENDS)


def child_of(folder: Path) -> int:
    file = folder / "child"
    until(lambda: file.exists() and bool(file.read_text()), "the body has not begun")
    return int(file.read_text())


# -- values and errors -----------------------------------------------------------------------------


@backends
def test_values_come_and_go(backend: str) -> None:
    """Arguments and results of users' own classes; another process, with what the body may know."""

    async def w() -> list[Any]:
        swapped = await crunching.swap.call(Point(1, 2))
        return [swapped.x, swapped.y, await crunching.who.call(), await crunching.who.call()]

    one = runs.Run(runs.a_workflow(w))

    x, y, first, second = runs.value_of(run_with_threads(backend, one.execute))
    assert (x, y) == (2, 1)
    assert first[0] == second[0] != os.getpid(), "the pool uses its processes again"
    assert first[1] != second[1]
    assert first[2] == 1


@pytest.mark.parametrize(
    ("kind", "error", "attempts"),
    [
        ("odd", Odd, 2), ("fatal", Fatal, 1), ("exit", ProcessDied, 2),
        ("interrupt", ProcessDied, 2), ("crash", ProcessDied, 2), ("kill", ProcessDied, 2),
        ("unstorable", UnencodableResult, 1),
    ],
)  # fmt: skip
def test_errors(kind: str, error: type[BaseException], attempts: int) -> None:
    """What a body raises is recorded as if it had run here; a dead child is a failed attempt."""

    async def w() -> None:
        await crunching.break_down.call(kind)

    one = runs.Run(runs.a_workflow(w))

    raised = runs.error_of(run_with_threads("asyncio", one.execute))
    assert isinstance(raised, error)
    assert len(one.begun) == attempts
    if kind == "odd":
        assert raised.args == (3, "odd")
        failure = one.steps()["break_down.1"].failure
        assert failure is not None
        assert "crunching.py" in failure.traceback
    if kind == "kill":
        assert "attempt 2 of step 'break_down' ended before it answered" in str(raised)


@backends
def test_arguments_that_cannot_be_sent(backend: str) -> None:
    """A lock or a local function cannot: said at once, and not tried again."""

    async def w() -> None:
        await crunching.swap.call(threading.Lock())  # type: ignore[arg-type]  # wrong on purpose

    one = runs.Run(runs.a_workflow(w))

    raised = runs.error_of(run_with_threads(backend, one.execute))
    assert isinstance(raised, InvalidArguments)
    assert "the arguments of step 'swap' cannot be sent to a child process" in str(raised)


@backends
@pytest.mark.parametrize("word", ["heartbeat", "publish"])
def test_a_child_tells_nothing_before_it_ends(backend: str, word: str) -> None:
    """What a body may say while it runs is refused in a child, with what to do instead."""

    async def w() -> None:
        await crunching.says.call(word)

    error = runs.error_of(run_with_threads(backend, runs.Run(runs.a_workflow(w)).execute))

    assert isinstance(error, NotInWorkflow)
    assert f"{word}() was called in a step with process=True" in str(error)
    assert "split the work into several such steps" in str(error)


def test_a_sync_workflow_calls_it_bare() -> None:
    """As any sync step."""

    def w() -> int:
        return crunching.swap(Point(1, 2)).x

    assert runs.value_of(run_with_threads("asyncio", runs.Run(runs.a_workflow(w)).execute)) == 2


def test_a_virtual_clock_waits_for_it() -> None:
    """Its hour is not over before the child has answered."""
    assert testing.run(crunching.timed, 20) == 6765


def test_outside_a_run_it_is_the_plain_function() -> None:
    """In this process."""
    assert crunching.swap(Point(1, 2)) == Point(2, 1)


# -- decoration ------------------------------------------------------------------------------------


async def a_coroutine() -> None: ...


def test_what_cannot_run_in_a_child() -> None:
    """Local functions, lambdas, async functions and heartbeats: refused where it is written."""

    def local() -> None: ...

    for fn in (local, lambda: None, a_coroutine):
        with pytest.raises(InvalidDefinition):
            step(process=True, name="processes-test bad")(fn)
    with pytest.raises(InvalidDefinition, match="no heartbeat"):
        step(process=True, heartbeat_timeout=5, name="processes-test bad")(is_alive)


def test_what_was_typed_in_cannot() -> None:
    """A child cannot import a program that came from standard input."""
    program = "import durable\n@durable.step(process=True)\ndef f() -> None: ...\n"
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, check=False,
        env=environment(),
    )  # fmt: skip

    assert "cannot import what was typed in" in done.stderr


# -- killed ----------------------------------------------------------------------------------------


@backends
def test_a_timeout_kills_it(backend: str, tmp_path: Path) -> None:
    """A body that never ends is killed, and the next attempt has a new process."""
    clock = ClockByHand()

    async def w() -> int:
        return int(await crunching.spin_once.options(timeout=5).call(str(tmp_path)))

    one = runs.Run(runs.a_workflow(w))

    async def meanwhile(execution: Execution) -> None:
        await anyio.to_thread.run_sync(child_of, tmp_path)
        clock.move(5)

    async def main() -> Closing | None:
        return await one.execute(meanwhile=meanwhile)

    assert runs.value_of(clock.run(main, backend=backend)) == 2
    assert [a.failure.type for a in one.attempts()] == ["durable.errors.StepTimeout"]
    assert not is_alive(child_of(tmp_path))
    assert issubclass(StepTimeout, TimeoutError)


@backends
def test_a_cancellation_kills_it(backend: str, tmp_path: Path) -> None:
    """Whatever cancels the call: here a bare timeout of the user's, once the body has begun."""

    async def w() -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(crunching.spin.call, str(tmp_path))
            await anyio.to_thread.run_sync(child_of, tmp_path)
            tasks.cancel_scope.cancel()
        return "went on"

    one = runs.Run(runs.a_workflow(w))

    assert runs.value_of(run_with_threads(backend, one.execute)) == "went on"
    assert one.steps()["spin.1"].outcome == "abandoned"
    until(lambda: not is_alive(child_of(tmp_path)), "the child lives on")


@backends
def test_a_cancelled_run_kills_it(backend: str, tmp_path: Path) -> None:
    """Its call is recorded as cancelled, and the run with it."""

    async def w() -> None:
        await crunching.spin.call(str(tmp_path))

    one = runs.Run(runs.a_workflow(w))

    async def meanwhile(execution: Execution) -> None:
        await anyio.to_thread.run_sync(child_of, tmp_path)
        execution.cancelling.ask(one.put_cancel())

    async def main() -> None:
        closing = await one.execute(meanwhile=meanwhile)
        assert isinstance(closing, Finished)
        assert closing.cancelled

    run_with_threads(backend, main)

    assert one.steps()["spin.1"].outcome == "cancelled"
    until(lambda: not is_alive(child_of(tmp_path)), "the child lives on")


@backends
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
def test_it_is_undone_once_it_is_dead(backend: str, how: str, tmp_path: Path) -> None:
    """Killed by a cancellation or its timeout, a body does nothing more that is to be undone."""
    crunching.ended.clear()
    clock = ClockByHand()
    body = crunching.spin_undoably
    if how == "timed out":
        body = body.options(timeout=5)

    async def w() -> None:
        await body.call(str(tmp_path))

    one = runs.Run(runs.a_workflow(w))

    async def meanwhile(execution: Execution) -> None:
        await anyio.to_thread.run_sync(child_of, tmp_path)
        if how == "cancelled":
            execution.cancelling.ask(one.put_cancel())
        else:
            clock.move(5)

    async def main() -> Closing | None:
        return await one.execute(meanwhile=meanwhile)

    closing = clock.run(main, backend=backend)

    assert isinstance(closing, Finished)
    assert closing.cancelled == (how == "cancelled")
    assert crunching.ended == [True]
    assert list(one.steps()) == ["spin_undoably.1", "undo/spin_undoably.1"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_with_their_worker(tmp_path: Path, how: signal.Signals) -> None:
    """Killed by kill -9 in the middle of a body, a worker leaves no process behind."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.crunching", str(tmp_path)],
        cwd=ROOT, env=environment(),
    )  # fmt: skip
    try:
        child = child_of(tmp_path)
        assert is_alive(child)
        worker.send_signal(how)
        worker.wait(SECONDS_MAX)
        until(lambda: not is_alive(child), "the child has outlived its worker")
    finally:
        worker.kill()


def test_ctrl_c_is_the_workers(tmp_path: Path) -> None:
    """It reaches the whole foreground group: the child leaves it to its worker."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.crunching", str(tmp_path)],
        cwd=ROOT, env=environment(), start_new_session=True, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        child = child_of(tmp_path)
        assert ignores(child, signal.SIGINT)
        os.killpg(worker.pid, signal.SIGINT)
        worker.communicate(timeout=SECONDS_MAX)
        until(lambda: not is_alive(child), "the child has outlived its worker")
    finally:
        worker.kill()


def test_a_worker_of_a_target_file(tmp_path: Path) -> None:
    """`durable run file.py` loads the file by itself; its children find it all the same."""
    (tmp_path / "sums.py").write_text(
        "import os\n"
        "from durable import step, workflow\n"
        "@step(process=True)\n"
        "def add(a: int, b: int) -> list[int]:\n"
        "    return [a + b, os.getpid()]\n"
        "@workflow\n"
        "async def total(worker: int) -> list[int]:\n"
        "    return [*await add.call(1, 2), os.getpid()]\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "durable.cli", "run", "sums.py", "--input", "[0]", "--json"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    total, child, worker = json.loads(done.stdout)["result"]
    assert total == 3
    assert child != worker
