"""`replay`: today's code against the record, without executing or writing anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from durable.cli import replaying
from durable.client import Client, reading
from durable.decorators import step, workflow
from durable.runtime.definitions import WorkflowDefinition
from durable.store import Store
from durable.store.memory import Bucket, MemoryBackend
from tests.cli.command import FLOWS, Done, objects

Cli = Callable[..., Done]

INPUT = '{"word": "hi"}'

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
    done = await replayed(bucket, code.definition)  # type: ignore[attr-defined]

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
    assert done.out.splitlines()[:2] == ["note.1  value", "fail.1  error"]


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
    assert "one.1  value" in text.out
    assert "RECORDED  ASKED NOW" in text.out
    assert "two.1     three.1" in text.out
    assert "recorded, but not asked for: two.1" in text.out
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
