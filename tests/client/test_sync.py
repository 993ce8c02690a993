"""The blocking words: a client for scripts, concurrency for sync workflows."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import anyio
import pytest

import durable
from durable import client as async_client
from durable import current, step, sync, workflow
from durable.client import Client
from durable.client.repair import Repair
from durable.decorators import AsyncStep
from durable.errors import (
    NotFound,
    NotInWorkflow,
    RunCancelled,
    RunFailed,
    StoreRefused,
    UsageError,
)
from durable.testing import environment
from tests.client.shop import charge, checkout, refused, weigh

HERE = "durable.sync"


@step
def double(number: int) -> int:
    return 2 * number


@workflow(name="sync.wide")
def wide(numbers: list[int]) -> list[Any]:
    def twice(number: int) -> int:
        return double(double(number))

    one, receipt = sync.gather(double.call(1), charge("A"))
    return [
        one, receipt, sync.map(double, numbers, limit=2), sync.map(twice, numbers, limit=2),
        sync.map(charge, ["B"]), sync.run(charge("C")),
    ]  # fmt: skip


@workflow(name="sync.held back", queue=durable.Queue("held-back", debounce="1h"))
def held_back(text: str) -> str:
    return text


@workflow(name="sync.asks for it")
def asks_for_it() -> list[str]:
    one = held_back.options(debounce_key="inside")
    return [sync.run(one.start(text)).id for text in ("a", "b")]


WIDE = [2, "receipt A", [2, 4, 6], [4, 8, 12], ["receipt B"], "receipt C"]


@workflow(name="sync.wrong")
async def wrong(word: str) -> None:
    if word == "gather":
        sync.gather(double.call(1))
    elif word == "map":
        sync.map(double, [1])
    else:
        sync.run(double.call(1))


stands: list[str] = []


@workflow(name="sync.stops")
async def stops() -> None:
    await double.call(1)
    if stands:
        await anyio.sleep_forever()


@workflow(name="sync.failing")
def failing() -> None:
    def fail(number: int) -> int:
        raise LookupError(f"number {number}")

    sync.map(fail, [1], limit=1)


# -- the client -----------------------------------------------------------------------------------


def test_the_whole_client_blocks(tmp_path: Path) -> None:
    """start, run, get, list and every word of a handle, without an event loop in sight."""
    with sync.connect(f"sqlite:///{tmp_path}/db") as client:
        value = client.run(checkout.options(id="x"), "A-1")
        started = client.start(checkout.options(id="y"), "A-1")
        handle = client.get("x")
        runs = [run.id for run in client.list(limit=5)]

        assert value == ("receipt A-1", 3)
        assert handle.result(timeout=1) == value
        assert handle.status() == "completed"
        assert [s.path for s in handle.steps()] == ["charge.1", "deliver.1"]
        assert (started.id, started.status()) == ("y", "waiting")
        assert runs == ["y", "x"]
        assert isinstance(handle, sync.Handle)
        assert isinstance(client, sync.Client)


def test_a_blocking_client_repairs_and_replays(tmp_path: Path) -> None:
    """The verbs for runs that went wrong are there, too, and give blocking handles."""
    with sync.connect(f"sqlite:///{tmp_path}/db") as client:
        with pytest.raises(RunFailed):
            client.run(refused.options(id="x"), "A-1")
        fits = client.replay("x")
        again = client.retry("x", reason="mended", by="ann")
        forked = client.fork("x", fits.calls[0][0], new_id="y")

        assert fits.difference == ""
        assert isinstance(again, sync.Handle)
        assert again.status() == "waiting"
        assert (forked.id, forked.status()) == ("y", "waiting")
        assert client.release("x") is False
        assert client.purge("x", force=True) > 0
        with pytest.raises(NotFound):
            client.get("x")


def test_a_replay_that_does_not_come_on_is_given_up() -> None:
    """After a minute, unless told otherwise; it says behind which call the code stands."""
    with environment() as env:
        env.client.run(stops.options(id="x"))
        stands.append("here")
        replayed = env.client.replay("x")
        longer = env.client.replay("x", timeout=3600)

    assert replayed.calls == [("double.1", "value")]
    assert "run 'x' was not over after 60 s; after call 'double.1'" in replayed.difference
    assert "at test_sync.py:" in replayed.difference
    assert "not over after 3600 s" in longer.difference


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """Where that is not wanted; the error names the file."""
    with pytest.raises(StoreRefused, match="there is no store"):
        sync.connect(f"sqlite:///{tmp_path}/folder/db", create=False).__enter__()

    assert list(tmp_path.iterdir()) == []


def test_errors_come_through_as_they_are(tmp_path: Path) -> None:
    """Not wrapped, and the client stays usable."""
    with sync.connect(f"sqlite:///{tmp_path}/db") as client:
        with pytest.raises(NotFound):
            client.get("nobody")
        with pytest.raises(RunFailed) as caught:
            client.run(refused, "A-1")

        assert type(caught.value.__cause__) is PermissionError


def test_it_works_where_an_event_loop_runs(tmp_path: Path) -> None:
    """A script's blocking client may be used in a thread of an async program."""

    def script() -> object:
        with sync.connect(f"sqlite:///{tmp_path}/db") as client:
            return client.run(checkout, "A-1")

    async def main() -> object:
        return await anyio.to_thread.run_sync(script)

    assert anyio.run(main) == ("receipt A-1", 3)


@pytest.mark.parametrize("cls", [async_client.Client, async_client.Handle, Repair])
def test_declared_signatures_are_the_async_ones(cls: type) -> None:
    """What type checkers are told is what is generated: the same names, the same parameters."""
    name = cls.__name__
    declared = {d.name: d for d in _declared(name) if not d.name.startswith("_")}
    public = {n: m for n, m in vars(cls).items() if not n.startswith("_")}

    assert declared.keys() == public.keys()
    assert public.keys() == {n for n in vars(getattr(sync, name)) if not n.startswith("_")}
    for method, member in public.items():
        if not isinstance(member, property):
            parameters = list(inspect.signature(member).parameters)
            assert parameters == _parameters(declared[method]), method


def _declared(name: str) -> list[ast.FunctionDef]:
    """The methods of a class in the branch of sync.py that only type checkers read."""
    tree = ast.parse(Path(sync.__file__).read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    (cls,) = [c for c in classes if c.name == name]
    return [node for node in cls.body if isinstance(node, ast.FunctionDef)]


def _parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    names = [a.arg for a in [*given.posonlyargs, *given.args]]
    if given.vararg:
        names.append(given.vararg.arg)
    names += [a.arg for a in given.kwonlyargs]
    if given.kwarg:
        names.append(given.kwarg.arg)
    return names


# -- in workflows ---------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_sync_workflow_runs_calls_side_by_side(client: Client) -> None:
    """gather, map over steps and over plain functions, and an async step, each at its place."""
    value = await client.run(wide.options(id="x"), [1, 2, 3])
    paths = [s.path for s in await (await client.get("x")).steps()]

    assert value == WIDE
    assert sorted(paths) == sorted(
        ["double.1", "charge.1", "charge.2", "map.3/0/charge.1"]
        + [f"map.1/{i}/double.1" for i in range(3)]
        + [f"map.2/{i}/double.{n}" for i in range(3) for n in (1, 2)]
    )


@pytest.mark.anyio
async def test_an_error_in_a_branch_is_raised(client: Client) -> None:
    """The branch's own error, not a group."""
    with pytest.raises(RunFailed, match="number 1") as caught:
        await client.run(failing)

    assert type(caught.value.__cause__) is LookupError


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore::durable.errors.NeverAwaited")  # what they were given
@pytest.mark.parametrize("word", ["gather", "map", "run"])
async def test_in_an_async_workflow_they_are_refused(client: Client, word: str) -> None:
    """The error says what to write instead."""
    with pytest.raises(RunFailed) as caught:
        await client.run(wrong, word)

    cause = caught.value.__cause__
    assert isinstance(cause, NotInWorkflow)
    assert "await" in (cause.hint or "")


@pytest.mark.anyio
async def test_in_async_code_outside_a_run_they_are_refused() -> None:
    """They would block the event loop."""
    call = charge("A")
    with pytest.raises(NotInWorkflow, match="event loop"):
        sync.run(call)
    await call


def test_outside_a_run_they_are_plain_concurrency() -> None:
    """A sync workflow called as a function does what it does in a run."""
    assert wide([1, 2, 3]) == WIDE


def test_what_is_no_call_is_refused() -> None:
    """A step that was called instead of handed over, and a list, are told apart."""
    with pytest.raises(UsageError, match="not int"):
        sync.gather(weigh("A"))  # type: ignore[call-overload]  # wrong on purpose
    with pytest.raises(UsageError, match=r"gather takes calls") as caught:
        sync.gather([])  # type: ignore[call-overload]  # wrong on purpose

    assert "*calls" in (caught.value.hint or "")
    assert isinstance(charge, AsyncStep)
    with pytest.raises(NotInWorkflow):
        current()


def test_cancelled_run_leaves_the_blocking_client_usable() -> None:
    """RunCancelled is no Exception, and must not end the event loop that it comes from."""
    with sync.connect("memory:cancelled") as client:
        handle = client.start(checkout.options(id="r"), "A")
        handle.cancel()
        with pytest.raises(RunCancelled):
            client.run(checkout.options(id="r"), "A")
        assert client.get("r").status() == "cancelled"
    with pytest.raises(RunCancelled), sync.connect("memory:cancelled") as client:
        client.get("r").result()


def test_words_that_never_wait_are_the_same() -> None:
    """They are offered beside the blocking ones."""
    for word in ("now", "patched", "publish", "random", "uuid"):
        assert getattr(sync, word) is getattr(durable, word)


def test_starts_that_are_held_back(tmp_path: Path) -> None:
    """From a script and inside a plain function: two starts with a key are one run."""
    with sync.connect(f"sqlite:///{tmp_path}/runs.db") as blocking:
        one = held_back.options(debounce_key="outside")
        first, second = blocking.start(one, "a"), blocking.start(one, "b")
        inside = blocking.run(asks_for_it)

        assert first.id == second.id
        assert inside[0] == inside[1] != first.id
