"""Durable sleeps: one stored deadline, parked when long, at no cost."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from durable import gather, sleep, sleep_until
from durable.errors import NotInWorkflow, UsageError
from durable.testing.virtual import EPOCH
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import a_step, a_workflow
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds
from tests.waits.long import DAY, parked, pass_time, verbs

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

YEAR = 365 * DAY


def _class_a(w: World) -> int:
    """Writes and lists so far; deletes are free."""
    calls = w.bucket.calls
    return sum(calls[verb] for verb in ("create", "replace", "list"))


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        (0, 0.0),
        (0.25, 0.25),
        ("2h", 7200.0),
        (timedelta(days=45), 45 * DAY),
        ("400d", 400 * DAY),
    ],
)
def test_sleep_ends_at_its_deadline(backend: str, duration: Any, seconds: float) -> None:
    """A sleep of any length ends at the stored deadline, within one poll."""

    @a_workflow
    async def flow() -> float:
        await sleep(duration)
        return anyio.current_time()

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            begun = anyio.current_time()
            await w.start("r", flow)
            if seconds > 10:
                await parked(w)
                process = await pass_time(w, process, seconds - 10)
            ended = await w.result("r")

            facts = await w.facts("r")
            assert seconds <= ended - begun <= seconds + 3
            assert [wait.path for wait in facts.waits] == ["sleep.1"]
            assert facts.waits[0].due == pytest.approx(EPOCH + begun + seconds, abs=2)

    run(backend, main, for_ever=2 * YEAR)


def test_parked_run_costs_nothing(backend: str) -> None:
    """While its run sleeps, nothing is held or written but what an idle worker writes anyway."""

    @a_workflow
    async def flow() -> str:
        await sleep("30d")
        return "woken"

    async def idle_cost(w: World) -> int:
        before = _class_a(w)
        await virtual_seconds(10 * 60)
        return _class_a(w) - before

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await virtual_seconds(120)
            idle = await idle_cost(w)
            await w.start("r", flow)
            hints = await parked(w)
            await virtual_seconds(120)

            assert len(hints) == 1
            assert not process.worker.runners
            assert await idle_cost(w) <= idle + 1  # the phase of its periods

    run(backend, main, for_ever=2 * YEAR)


def test_cost_of_a_parked_sleep(backend: str) -> None:
    """Six class A operations: wait, timer; marker, bell; take, epoch. And one list of the run."""

    @a_workflow
    async def flow() -> None:
        await sleep("30d")

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            w.bucket.log.clear()
            await w.start("r", flow)
            await parked(w)
            await pass_time(w, process, 31 * DAY)
            await w.result("r")

            start = ["create start", "create live", "create bells", "replace live"]
            sleeping = ["create waits", "create timers"]
            waking = ["create live", "create bells", "replace live", "create epochs"]
            assert verbs(w) == [*start, *sleeping, *waking, "create result", "create history"]
            await w.until(lambda: not [n for n in w.there() if n.startswith(("timers/", "live/"))])

    run(backend, main, for_ever=2 * YEAR)


@pytest.mark.parametrize("duration", [-1, math.nan, math.inf, "-2h", "soon", 9e11, timedelta(-1)])
def test_impossible_sleeps_are_refused_at_the_call(backend: str, duration: Any) -> None:
    """What is no duration, or ends after the year 9999, is refused before anything is written."""

    @a_workflow
    async def flow() -> str:
        try:
            sleep(duration)
        except UsageError:
            return "refused"
        return "accepted"

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)

            assert await w.result("r") == "refused"
            assert not (await w.facts("r")).waits

    run(backend, main, for_ever=2 * YEAR)


def test_sleep_until_the_last_year(backend: str) -> None:
    """A moment as far as names reach parks the run with a hint of that time."""

    @a_workflow
    async def flow() -> None:
        await sleep_until(datetime(9999, 12, 31, tzinfo=UTC))

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)

            (hint,) = await parked(w)
            assert hint.startswith("timers/9999-12-31T00:00:00.000Z/r/")

    run(backend, main, for_ever=2 * YEAR)


def test_sleep_until_the_past_and_without_a_zone(backend: str) -> None:
    """A moment in the past is over at once; without a time zone it is refused, as a number is."""

    @a_workflow
    async def flow() -> str:
        await sleep_until(datetime(2000, 1, 1, tzinfo=UTC))
        with pytest.raises(UsageError, match="takes a datetime, not int"):
            sleep_until(5)  # type: ignore[arg-type]  # what is refused
        try:
            sleep_until(datetime(2000, 1, 1))  # noqa: DTZ001  # what is refused
        except UsageError as e:
            return e.message
        return "accepted"

    async def main() -> None:
        async with world() as w:
            await w.process()
            begun = anyio.current_time()
            await w.start("r", flow)

            assert "time zone is missing" in await w.result("r")
            assert anyio.current_time() - begun < 10

    run(backend, main, for_ever=2 * YEAR)


def test_sleep_in_a_step_is_refused(backend: str) -> None:
    """The time of a step's body is not durable."""

    @a_step(attempts=1)
    async def body() -> str:
        try:
            await sleep(1)
        except NotInWorkflow as e:
            return e.message
        return "slept"

    @a_workflow
    async def flow() -> str:
        return str(await body())

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            assert "in the body of a step" in await w.result("r")

    run(backend, main, for_ever=2 * YEAR)


def test_deadline_survives_crashes(backend: str) -> None:
    """B74: a worker that dies every 20 seconds does not start the sleep anew."""

    @a_workflow
    async def flow() -> float:
        await sleep(60)
        return anyio.current_time()

    async def main() -> None:
        async with world() as w:
            begun = anyio.current_time()
            process = await w.process()
            await w.start("r", flow)
            for _ in range(5):
                await virtual_seconds(20)
                process.kill()
                process = await w.process()

            assert 60 <= await w.result("r") - begun <= 60 + 25

    run(backend, main, for_ever=2 * YEAR)


def test_order_of_sleeps_is_recorded(backend: str) -> None:
    """Whether a sleep or a step came first is the same for every later owner."""
    order: list[list[str]] = []

    @a_step
    async def work() -> None:
        await virtual_seconds(2)

    @a_workflow
    async def flow() -> list[str]:
        seen: list[str] = []

        async def one(name: str, call: Any) -> None:
            await call
            seen.append(name)

        await gather(one("long", sleep(3)), one("work", work()), one("short", sleep(1)))
        await work()
        order.append(list(seen))
        await sleep(100)
        return seen

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await virtual_seconds(50)
            process.kill()
            await w.process()
            live = await w.result("r")

            facts = await w.facts("r")
            assert live == ["short", "work", "long"]
            assert order[1:] == order[:-1] != []
            slept = [sleep.path for step in facts.steps for sleep in step.slept]
            assert {"sleep.1", "sleep.2"} == set(slept)

    run(backend, main, for_ever=2 * YEAR)


def test_user_code_cancels_a_sleep(backend: str) -> None:
    """A bare timeout around a sleep is recorded, and replay is cut off in the same place."""

    @a_workflow
    async def flow() -> str:
        with anyio.move_on_after(2) as scope:
            await sleep(8)
        await sleep("1h")
        return "cut off" if scope.cancelled_caught else "slept"

    async def main() -> None:
        async with world() as w:
            process = await w.process(always_park=False)
            await w.start("r", flow)
            await parked(w)
            assert [(s.path, s.outcome) for s in (await w.facts("r")).steps] == [
                ("sleep.1", "abandoned")
            ]
            await pass_time(w, process, 3600)

            assert await w.result("r") == "cut off"

    run(backend, main, for_ever=2 * YEAR)
