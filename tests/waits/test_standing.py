"""What forbids a park, and what user code of its own has to do with it."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from durable import gather, map, sleep, timeout, wait_event
from durable.client import Handle
from durable.protocol import names
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import a_step, a_workflow
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds
from tests.waits.long import concerns, parked

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@a_step
async def _work(seconds: float) -> float:
    await virtual_seconds(seconds)
    return seconds


def _is_parked(w: World) -> bool:
    return names.marker("default", "r") not in w.there()


async def _stays(w: World, seconds: float) -> None:
    """The run is not parked in that time."""
    with anyio.move_on_after(seconds):
        while True:
            await virtual_seconds(1)
            assert not _is_parked(w)


def test_tasks_of_user_code_do_not_forbid_it(backend: str) -> None:
    """A task that stands elsewhere is cancelled by the park and begins anew."""
    begun: list[str] = []

    @a_workflow
    async def flow() -> str:
        async def own() -> None:
            begun.append("own")
            await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(own)
            await sleep(100)
            tasks.cancel_scope.cancel()
        return "done"

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await parked(w)

            assert await w.result("r") == "done"
            assert begun == ["own", "own"]

    run(backend, main)


def test_a_step_in_a_task_of_user_code_forbids_it(backend: str) -> None:
    """An open durable call that is no wait keeps the run, whoever awaits it."""

    @a_workflow
    async def flow() -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_work, 40)
            await sleep(100)
        return "done"

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await virtual_seconds(3)
            await _stays(w, 30)
            await virtual_seconds(15)
            assert _is_parked(w)
            assert await w.result("r") == "done"

    run(backend, main)


def test_a_branch_of_waits_and_inline_workflows(backend: str) -> None:
    """Branches, inline workflows and blocks under a deadline all stand if their waits do."""

    @a_workflow
    async def inner(seconds: float) -> float:
        async with timeout("1d"):
            await sleep(seconds)
        return seconds

    @a_workflow
    async def flow() -> list[Any]:
        async def branch(seconds: float) -> float:
            (value,) = await gather(inner(seconds))
            return float(value)

        return [await map(branch, [60.0, 70.0], limit=1), await inner(80.0)]

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)

            assert await w.result("r") == [[60.0, 70.0], 80.0]
            assert [epoch.why for epoch in (await w.facts("r")).epochs] == ["wake"] * 3

    run(backend, main)


def test_plain_asyncio_over_waits(backend: str) -> None:
    """Plain constructs give the same values; a strand that awaits them is not parked."""
    if backend != "asyncio":
        pytest.skip("asyncio's own words")

    @a_workflow
    async def flow() -> list[Any]:
        task = asyncio.create_task(sleep(20))
        got = await asyncio.gather(wait_event("a", str), wait_event("b", str))
        await task
        return list(got)

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            handle = Handle[Any](w.store, "r", (await w.facts("r")).start)
            await _stays(w, 15)
            await handle.send("b", "two")
            await handle.send("a", "one")

            assert await w.result("r") == ["one", "two"]

    run(backend, main)


def test_an_event_wait_stands_ten_seconds_first(backend: str, mode: str) -> None:
    """What may end at any moment is waited for in place for a while."""

    @a_workflow
    async def flow() -> None:
        await wait_event("go")

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await w.until(lambda: any("/waits/" in name for name in w.there()))
            if mode == "normal":
                await _stays(w, 8)
            await virtual_seconds(4)
            assert _is_parked(w)

    run(backend, main)


def test_sending_at_every_call_around_completion(backend: str) -> None:
    """B77: wherever an event meets the end of a run, it is `accepted` only before the end."""

    @a_workflow
    async def flow() -> str:
        await _work(1)
        return "done"

    async def scenario(at: int) -> str | None:
        async with world() as w:
            process = await w.process()
            seen = 0
            due = anyio.Event()

            def watch(call: Any) -> None:
                nonlocal seen
                if concerns(call.name) and call.verb != "list":
                    seen += 1
                    if seen == at:
                        due.set()

            process.backend.faults = watch  # type: ignore[attr-defined]  # in memory it has
            start = await w.start("r", flow)
            with anyio.move_on_after(30):
                await due.wait()
                answer = await Handle[Any](w.store, "r", start).send("late", None)
                over = (await w.facts("r")).result is not None
                assert await w.result("r") == "done"
                assert answer == "accepted" or over
                await w.until(lambda: _is_parked(w))
                return answer
            return None

    async def main() -> None:
        answers = []
        while (answer := await scenario(len(answers) + 1)) is not None:
            answers.append(answer)
        assert answers[0] == "accepted"
        assert "finished" in answers

    run(backend, main)
