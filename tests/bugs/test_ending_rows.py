"""Public bug reports about how runs and their workers end, as trials of ours."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

from durable import step, workflow
from durable.protocol import names
from durable.store.memory import Call
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds

pytestmark = [pytest.mark.anyio, pytest.mark.requires("trio")]

broken = False
bodies = Counter[int]()


@pytest.fixture
def anyio_backend() -> Any:
    from trio.testing import MockClock

    global broken  # noqa: PLW0603  # of this module's steps
    broken = False
    bodies.clear()
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@step(name="bug-ends", attempts=1)
async def ends(number: int) -> int:
    fails = broken
    bodies[number] += 1
    await virtual_seconds(3)
    if fails:
        raise LookupError("nothing there")
    return number


@workflow(name="bug-B92")
async def short() -> int:
    return await ends(0)


@workflow(name="bug-B94")
async def many() -> list[int]:
    return [await ends(number) for number in range(12)]


def outcomes(w: World, run: str = "r") -> list[str]:
    """The writes of its outcome and of its place in the history."""
    ends = (f"-{run}", "/result")
    return [n for n in w.writes() if n.endswith(ends) and not n.startswith(("live/", "timers/"))]


async def test_b92_told_to_end_right_after_the_outcome() -> None:
    """B92: a SIGTERM that follows the last write flips nothing, and nothing is written twice."""
    async with world() as w:
        start = await w.start("r", short)
        over = names.result("r", start.instance)

        def ends_it(call: Call) -> None:
            if call.name == over and call.verb == "create":
                process.worker.stop()

        process = await w.process(faults=ends_it)
        await process.gone.wait()
        await w.process()

        assert await w.result("r") == 0
        await virtual_seconds(120)
        # Whoever clears the marker away may try the history's name again, and is refused.
        assert len(set(outcomes(w))) == 2, outcomes(w)
        assert await w.result("r") == 0
        assert not w.hints("live/")


async def test_b92_a_zombie_that_succeeds_after_the_run_has_failed() -> None:
    """B92: its value comes too late: the run has failed, and stays so."""
    global broken  # noqa: PLW0603  # of this module's steps
    async with world() as w:
        zombie = await w.process()
        start = await w.start("r", short)
        await w.until(lambda: bodies[0] == 1)
        zombie.pause()
        broken = True
        await w.process()
        assert await w.result("r") == "nothing there"
        before = outcomes(w)

        zombie.wake()
        await virtual_seconds(300)
        assert await w.result("r") == "nothing there"
        assert outcomes(w) == before
        facts = await w.facts("r")
        assert [s.outcome for s in facts.steps] == ["error"]
        assert facts.start.instance == start.instance


@pytest.mark.parametrize("workers", [1, 2])
async def test_b94_awake_for_ten_seconds_of_every_minute(workers: int) -> None:
    """B94: what cannot renew is fenced and starts anew; the run comes to its end meanwhile."""
    async with world() as w:
        processes = [await w.process() for _ in range(workers)]
        await w.start("r", many)

        async def freeze() -> None:
            while True:
                await virtual_seconds(10)
                for process in processes:
                    process.pause()
                await virtual_seconds(50)
                for process in processes:
                    process.wake()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(freeze)
            with anyio.fail_after(600):
                assert await w.result("r") == list(range(12))
            tasks.cancel_scope.cancel()

        facts = await w.facts("r")
        assert len(facts.steps) == 12
        assert len(facts.epochs) > 1  # it was taken over, by itself if it was alone
        assert sum(bodies.values()) <= 12 + len(facts.epochs)
