"""Waits of runs that a client carries itself, in async and in sync workflows; on real time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from durable import connect, errors, select, sleep, step, sync, timeout, wait_event, workflow
from tests.facts import becomes_true
from tests.runtime.clocks import BACKENDS, run_with_threads

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@step
def _add(a: int, b: int) -> int:
    return a + b


@workflow(name="in_one.leaf")
async def _leaf(number: int) -> int:
    await sleep(0.05)
    return number


@workflow(name="in_one.middle")
async def _middle(number: int) -> int:
    child = await _leaf.start(number)
    return 1 + await child.result()


@workflow(name="in_one.top")
async def _top(number: int) -> int:
    children = [await _middle.start(number), await _leaf.start(10)]
    return sum([await child.result() for child in children])


@workflow(name="in_one.sync_waits", events={"go": int})
def _sync_waits() -> list[Any]:
    sync.sleep("20ms")
    got = sync.wait_event("go")
    name, value = sync.select(late=sync.sleep.call(0.02), never=sync.wait_event.call("never"))
    child = sync.run(_leaf.start(4))
    both = sync.gather(child.result(), _add.call(1, 2))
    try:
        sync.wait_event("never", timeout="20ms")
    except errors.WaitTimeout:
        both = (*both, "timed out")
    return [got, name, value, *both]


@workflow(name="in_one.sync_timeout")
def _sync_timeout() -> list[str]:
    seen = [str(_add(1, 2))]  # outside: nobody knows how long a thread takes
    try:
        with sync.timeout("50ms"):
            sync.wait_event("never")
            seen.append("never")
    except TimeoutError:
        seen.append("timed out")
    with sync.timeout("10m"):
        seen.append(str(_add(2, 2)))
    return seen


@workflow(name="in_one.async_timeout")
async def _async_timeout() -> str:
    try:
        async with timeout("50ms"):
            await wait_event("never")
    except TimeoutError:
        name, _ = await select(a=sleep(0.02), b=wait_event("never"))
        return f"timed out, then {name}"
    return "ended"


def _in_store(backend: str, tmp_path: Path, main: Callable[[Any], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with connect(f"sqlite:///{tmp_path}/runs.db") as client:
            await main(client)

    run_with_threads(backend, connected)


def test_children_of_children_are_carried_here(backend: str, tmp_path: Path) -> None:
    """`client.run` needs no worker: it carries the run, its children and theirs."""

    async def main(client: Any) -> None:
        assert await client.run(_top, 5) == 16

    _in_store(backend, tmp_path, main)


def test_a_sync_workflow_waits(backend: str, tmp_path: Path) -> None:
    """Every word has its blocking twin: sleep, event, select, child, deadline."""

    async def main(client: Any) -> None:
        async def is_there() -> bool:
            return [run.id async for run in client.list()] == ["s"]

        async def send() -> None:
            await becomes_true(is_there)
            await (await client.get("s")).send("go", 7)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            result = await client.run(_sync_waits.options(id="s"))
        assert result == [7, "late", None, 4, 3, "timed out"]

    _in_store(backend, tmp_path, main)


def test_a_block_of_sync_code_is_cut_off(backend: str, tmp_path: Path) -> None:
    """The call under way in the block raises; a block that ends in time goes on."""

    async def main(client: Any) -> None:
        assert await client.run(_sync_timeout) == ["3", "timed out", "4"]
        assert await client.run(_async_timeout) == "timed out, then a"

    _in_store(backend, tmp_path, main)


def test_words_outside_a_run(backend: str) -> None:
    """A sleep is an ordinary one, a select plain concurrency; events and children need a run."""

    async def main() -> None:
        await sleep(0)
        name, _ = await select(fast=sleep(0), slow=sleep(60))
        assert name == "fast"
        with pytest.raises(errors.WaitTimeout):
            async with timeout(0.01):
                await sleep(60)
        with pytest.raises(errors.NotInWorkflow):
            wait_event("go")
        with pytest.raises(errors.NotInWorkflow):
            _leaf.start(1)

    run_with_threads(backend, main)


def test_async_words_in_a_sync_workflow(backend: str) -> None:
    """They say which word blocks, before anything is recorded."""

    @workflow(name="in_one.wrong")
    def wrong() -> str:
        for word in (lambda: sleep(1), lambda: wait_event("a"), lambda: timeout(1)):
            with pytest.raises(errors.NotInWorkflow, match=r"durable\.sync\."):
                word()
        return "refused"

    async def main() -> None:
        async with connect("memory:") as client:
            assert await client.run(wrong) == "refused"

    run_with_threads(backend, main)
