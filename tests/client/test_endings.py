"""What ends a process or its event loop is no outcome of any run."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import anyio
import pytest

from durable import gather, step, workflow
from durable.client import Client
from durable.errors import RunFailed
from durable.store import Store
from durable.store.memory import Bucket, MemoryBackend
from durable.store.sqlite import SqliteBackend

begun: list[str] = []


@step(name="endings-test rest")
async def rest(name: str) -> None:
    begun.append(name)
    await anyio.sleep_forever()


@step(name="endings-test leave")
async def leave() -> None:
    sys.exit(4)


@step(name="endings-test leave in a thread")
def leave_in_a_thread() -> None:
    sys.exit(5)


@workflow(name="endings-test resting")
async def resting(name: str) -> None:
    await rest(name)


@workflow(name="endings-test leaving step")
async def by_step() -> None:
    await leave()


@workflow(name="endings-test leaving thread")
async def by_thread() -> None:
    await leave_in_a_thread.call()


@workflow(name="endings-test leaving body")
async def by_body() -> None:
    sys.exit(6)


@workflow(name="endings-test leaving branch")
async def by_branch() -> None:
    async def branch() -> None:
        sys.exit(7)

    await gather(branch(), rest("beside"))


def test_an_event_loop_that_ends_records_nothing(tmp_path: Path) -> None:
    """It cancels every task at once, which is not the code of any run cancelling its calls (P6)."""
    begun.clear()
    path = str(tmp_path / "durable.db")  # a write to it may be over before anybody else's turn

    async def run(name: str) -> None:
        async with Client(Store(SqliteBackend(path))) as client:
            await client.run(resting.options(id=name), name)

    async def main() -> None:
        tasks = [asyncio.create_task(run(f"r{i}")) for i in range(10)]
        while len(begun) < 10:
            await anyio.lowlevel.checkpoint()
        assert tasks

    asyncio.run(main())

    with sqlite3.connect(path) as database:
        found = [name for (name,) in database.execute("select name from objects")]
    database.close()
    assert [name for name in found if name.endswith("/start")]
    assert not [name for name in found if "/steps/" in name]


@pytest.mark.anyio
@pytest.mark.parametrize("workflow", [by_step, by_thread, by_body, by_branch], ids=lambda w: w.name)
async def test_exit_in_user_code_fails_its_run_and_nothing_else(workflow: object) -> None:
    """`sys.exit` in a step, thread, branch or workflow is an error like any other."""
    async with Client(Store(MemoryBackend(Bucket()))) as client:
        with pytest.raises(RunFailed, match="SystemExit"):
            await client.run(workflow)  # type: ignore[call-overload]  # wrong on purpose
