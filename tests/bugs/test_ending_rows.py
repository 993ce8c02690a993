"""Public bug reports about how runs and their workers end, as trials of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from durable import step, workflow
from durable.errors import UsageError
from durable.protocol import names
from durable.store.memory import Call
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds

pytestmark = [pytest.mark.anyio, pytest.mark.requires("trio")]

broken = False
bodies = Counter[int]()
undone: list[str] = []
deadly: set[str] = set()  # what kills the process in which it is undone


@pytest.fixture
def anyio_backend() -> Any:
    from trio.testing import MockClock

    global broken  # noqa: PLW0603  # of this module's steps
    broken = False
    bodies.clear()
    undone.clear()
    deadly.clear()
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


async def free(seat: str) -> None:
    undone.append(seat)
    if seat in deadly:
        await anyio.sleep_forever()  # until its process is killed


@step(name="bug-poison", undo=free)
async def poison(seat: str) -> str:
    bodies[1] += 1
    await anyio.sleep_forever()
    return seat


@step(name="bug-before-poison", undo=free)
async def before_poison(seat: str) -> str:
    return seat


@workflow(name="bug-B96", on_crash_loop="fail")
async def kills_its_process(seat: str) -> str:
    await before_poison(seat)
    return await poison("last")


async def die_until(w: World, over: Callable[[World], bool]) -> int:
    """Workers come one after the other; each is killed by what it begins. How many died."""
    deaths = 0
    while not over(w):
        process, before = await w.process(), bodies[1] + len(undone)
        while bodies[1] + len(undone) == before and not over(w):
            await virtual_seconds(1)
        if not over(w):
            deaths += 1
            process.kill()
        assert deaths < 40
    return deaths


async def test_b96_by_option_a_poisonous_run_fails() -> None:
    """B96: after five solitary deaths it is over and undone, and no more of its bodies begin."""
    async with world() as w:
        start = await w.start("r", kills_its_process, "first")
        await die_until(w, lambda w: "last" in undone)

        said = await w.result("r")
        assert said.startswith("run 'r' was alone in 5 processes that died")
        facts = await w.facts("r")
        assert facts.result is not None
        assert facts.result.failure is not None
        assert facts.result.failure.type == "durable.errors.CrashLoop"
        assert undone == ["last", "first"]
        assert not w.hints("attention/")
        tried = bodies[1]
        await w.process()
        await virtual_seconds(120)
        assert bodies[1] == tried
        assert (await w.facts("r")).start.instance == start.instance


async def test_b96_what_kills_its_process_while_it_is_undone_needs_attention() -> None:
    """B96: that does not go on for ever either; nobody says that it was undone."""
    deadly.add("first")
    async with world() as w:
        await w.start("r", kills_its_process, "first")
        await die_until(w, lambda w: bool(w.hints("attention/")))

        assert (await w.attention("r")).reason == "crash-loop"
        facts = await w.facts("r")
        assert facts.result is None
        assert undone.count("last") == 1
        assert 5 <= undone.count("first") <= 10


def test_b96_there_are_two_ways() -> None:
    """B96: any other is refused where it is written."""
    with pytest.raises(UsageError, match="none of attention, fail"):
        workflow(name="bug-B96-other", on_crash_loop="retry")(free)  # type: ignore[call-overload]  # wrong on purpose


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
