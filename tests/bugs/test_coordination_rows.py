"""Public bug reports about schedules and limits, as trials of ours. A row's id names the report."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from durable import Queue, cron, current
from durable.decorators import registry, step, workflow
from durable.protocol import moments, ticks
from durable.runtime import asking
from durable.testing.virtual import EPOCH
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import Process, World, world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

PHASES = range(0, 60, 2)  # store calls of a worker that takes a run, carries it and ends it
LIMIT = 3
JOBS = 200

bodies: list[str] = []
inside: set[str] = set()
most: list[int] = [0]


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    bodies.clear()
    inside.clear()
    most[0] = 0
    return virtual(request.param)


async def at_eight() -> str:
    bodies.append(current().run_id)
    return current().run_id


@pytest.fixture
def daily() -> Iterator[str]:
    """Decorated for the time of a test: workers of other tests serve all there is."""
    made = workflow(name="bug-daily", schedule=cron("0 8 * * *"))(at_eight)
    yield made.name
    del registry._registry[type(made.definition), made.name]


@step(name="bug-limited body")
async def limited_body(seconds: float) -> None:
    run = current().run_id
    bodies.append(run)
    inside.add(run)
    most[0] = max(most[0], len(inside))
    try:
        await virtual_seconds(seconds)
    finally:
        inside.discard(run)


@workflow(name="bug-alone", queue=Queue("bug-one", concurrency=1))
async def alone(seconds: float) -> str:
    await limited_body(seconds)
    return current().run_id


@workflow(name="bug-three", queue=Queue("bug-three", concurrency=LIMIT))
async def three(seconds: float) -> str:
    await limited_body(seconds)
    return current().run_id


async def worker(w: World, **more: Any) -> Process:
    return await w.process(
        serves=lambda name: name in {"bug-alone", "bug-three"},
        queues=("bug-one", "bug-three"),
        **more,
    )


def left(w: World) -> list[str]:
    """What must be gone once all runs are over."""
    return [n for n in w.there() if "/slots/" in n or "/pending/" in n or n.startswith("live/")]


async def test_a_new_schedule_fires_at_its_first_time_and_once(daily: str) -> None:
    """B70: created 19 seconds before its time, its scheduler started three times more."""
    async with world() as w:
        due = moments.seconds("2023-11-15T08:00:00.000Z")
        assert due > EPOCH
        await virtual_seconds(due - 19 - w.store.now())
        for pause in (3, 4, 4):
            process = await w.process(serves=lambda name: name == daily)
            await virtual_seconds(pause)
            process.kill()
        assert bodies == []
        await w.process(serves=lambda name: name == daily)
        await virtual_seconds(120)

        assert bodies == [ticks.run_id(daily, due)]


@pytest.mark.parametrize("ends", ["cancelled", "killed", "both"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_holder_that_ends_in_any_phase_leaks_no_slot(ends: str, phase: int) -> None:
    """B82: limit 1; whenever the holder is cancelled or its worker killed, the next goes on."""
    async with world() as w:
        start = await w.start("a", alone, 20.0)
        calls = [0]
        reached = anyio.Event()

        def counts(_call: Any) -> None:
            calls[0] += 1
            if calls[0] > phase:
                reached.set()

        first = await worker(w, faults=counts)
        with anyio.move_on_after(60):
            await reached.wait()
        await w.start("b", alone, 1.0)
        if ends != "killed":
            await asking.cancel(w.store, "a", start)
        if ends != "cancelled":
            first.kill()
            inside.clear()
            await worker(w)
        began = anyio.current_time()
        assert await w.result("b") == "b"
        await w.result("a")

        assert anyio.current_time() - began < 70
        assert most[0] <= 1
        await w.until(lambda: left(w) == [])


async def test_racing_workers_never_exceed_the_limit() -> None:
    """B83: limit 3, eight workers that stop and go on at random, 200 jobs: three at most, all."""
    async with world() as w:
        chance = random.Random(7)  # the same pauses each time
        workers = [await worker(w) for _ in range(8)]
        for number in range(JOBS):
            await w.start(f"j{number}", three, chance.uniform(0.5, 4))

        async def stumble(process: Process) -> None:
            while True:
                await virtual_seconds(chance.uniform(1, 20))
                process.pause()
                await virtual_seconds(chance.uniform(0.1, 6))
                process.wake()

        async with anyio.create_task_group() as tasks:
            for process in workers[:6]:
                tasks.start_soon(stumble, process)
            for number in range(JOBS):
                assert await w.result(f"j{number}") == f"j{number}"
            tasks.cancel_scope.cancel()

        assert most == [LIMIT]
        assert len(set(bodies)) == JOBS
        await w.until(lambda: left(w) == [])
