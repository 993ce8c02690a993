"""Schedules on a virtual clock: each tick fires once, whoever lives, and idle costs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import msgspec
import pytest

from durable.decorators import registry, step, workflow
from durable.protocol import names, records, ticks
from durable.protocol.records import ScheduleRecord
from durable.protocol.schedules import Schedule, cron, delay, every
from durable.runtime import firing
from durable.runtime.scopes import current
from durable.store import REMOTE_PACE, Stored
from durable.store.memory import Call, Fault
from durable.testing.virtual import EPOCH
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

PERIOD = 300.0  # seconds between two ticks
CALL = msgspec.Raw(b'{"args":[],"kwargs":{}}')

bodies: list[str] = []


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    bodies.clear()
    return virtual(request.param)


async def often() -> str:
    bodies.append(current().run_id)
    return str(current().tick)


@pytest.fixture(autouse=True)
def _scheduled() -> Iterator[None]:
    """Decorated for the time of a test: workers of other tests serve all there is."""
    made = workflow(name="schedule-test often", schedule=every("5m"))(often)
    yield
    del registry._registry[type(made.definition), made.name]


@step(name="schedule-test take")
async def take(seconds: float) -> None:
    bodies.append(current().run_id)
    await virtual_seconds(seconds)


@workflow(name="schedule-test long")
async def long(seconds: float = 1.5 * PERIOD) -> None:
    await take(seconds)


async def declare(w: World, name: str, schedule: Schedule, workflow_name: str) -> None:
    """As a client creates it."""
    asked = ScheduleRecord(
        name=name, workflow=workflow_name, input=CALL, schedule=schedule, nonce="", by="client"
    )
    await firing.change(w.store, name, lambda there: ticks.declared(there, asked, w.store.now()))


async def register(w: World, name: str) -> ScheduleRecord:
    stored = await w.store.read(names.schedule(name))
    assert stored is not None
    return firing.decode(stored)


def serves(*known: str) -> Callable[[str], bool]:
    return lambda name: name in known


OFTEN = serves("schedule-test often")
LONG = serves("schedule-test long")


def runs(w: World) -> list[str]:
    """Ids of all runs, by name."""
    found = {n.split("/")[1] for n in w.there() if n.startswith("runs/")}
    return sorted(names.last_part(run) for run in found)


# The ticks after the virtual clock's zero, 22:13:20.
TICKS = [(EPOCH // PERIOD + i) * PERIOD for i in range(1, 40)]


async def sleep_until(w: World, moment: float) -> None:
    await virtual_seconds(moment - w.store.now())


async def test_each_tick_runs_once_however_many_workers_there_are() -> None:
    """Three workers, five ticks: five runs, each named for its tick and knowing it."""
    async with world() as w:
        for _ in range(3):
            await w.process(serves=OFTEN)
        await sleep_until(w, TICKS[4] + 60)

        wanted = [ticks.run_id("schedule-test often", tick) for tick in TICKS[:5]]
        assert runs(w) == wanted
        assert bodies == wanted
        assert await w.result(wanted[0]) == "2023-11-14 22:15:00+00:00"


async def test_a_tick_fires_within_seconds() -> None:
    """Nobody polls for it: the worker sleeps until the tick, and then spreads over a second."""
    async with world() as w:
        await w.process(serves=OFTEN)
        tick = TICKS[0]
        await virtual_seconds(tick - w.store.now() - 0.01)
        assert not runs(w)
        await w.until(lambda: bool(bodies))

        assert w.store.now() - tick <= 2 * REMOTE_PACE.bell + 1


async def test_an_idle_schedule_writes_nothing() -> None:
    """Between two ticks a schedule costs one get a minute, and no write or list."""
    async with world() as w:
        await w.process(serves=OFTEN)
        await sleep_until(w, TICKS[0] + 60)
        before = len(w.bucket.log)
        await virtual_seconds(PERIOD - 130)

        of_schedules = Counter(
            verb
            for verb, name in w.bucket.log[before:]
            if name.startswith(names.SCHEDULES) or name == names.SCHEDULES_CHANGED
        )
        assert set(of_schedules) == {"read"}
        assert of_schedules["read"] <= PERIOD / REMOTE_PACE.slow / 0.8


async def test_what_a_tick_costs() -> None:
    """One CAS of the register and a start: two creates and a ring. Other workers only read."""
    async with world() as w:
        for _ in range(3):
            await w.process(serves=OFTEN)
        await sleep_until(w, TICKS[0] + 60)
        before = len(w.bucket.log)
        await virtual_seconds(PERIOD)

        run = ticks.run_id("schedule-test often", TICKS[1])
        written = Counter(
            (verb, name.split("/")[0])
            for verb, name in w.bucket.log[before:]
            if verb in {"create", "replace"}
            and (name.startswith("schedules/") or name == names.start(run))
        )
        assert written == {("replace", "schedules"): 1, ("create", "runs"): 1}


async def test_a_tick_whose_decider_died_is_started_by_another() -> None:
    """The register says started, the run is not there: the other worker looks a little later."""
    async with world() as w:

        def hangs_after_deciding(call: Call) -> Fault | None:
            if call.verb == "replace" and call.name.startswith("schedules/"):
                return Fault("slow_reply", seconds=PERIOD)
            return None

        first = await w.process(serves=OFTEN, faults=hangs_after_deciding)
        tick = TICKS[0]
        await virtual_seconds(tick + 10 - w.store.now())
        assert (await register(w, "schedule-test often")).started == [tick]
        first.kill()
        assert not runs(w)
        await w.process(serves=OFTEN)

        await w.until(lambda: bool(bodies))
        assert bodies == [ticks.run_id("schedule-test often", TICKS[0])]
        assert (await register(w, "schedule-test often")).fired == 1


async def test_all_down_for_26_ticks() -> None:
    """By default the last missed tick runs; the others are counted."""
    async with world() as w:
        process = await w.process(serves=OFTEN)
        await sleep_until(w, TICKS[0] + 60)
        process.kill()
        await virtual_seconds(26 * PERIOD)
        await w.process(serves=OFTEN)
        await w.until(lambda: len(bodies) == 2)
        await virtual_seconds(60)

        assert bodies[1] == ticks.run_id("schedule-test often", TICKS[26])
        found = await register(w, "schedule-test often")
        assert (found.fired, found.missed, found.skipped) == (2, 25, 0)


async def test_all_missed_ticks_run_one_after_the_other() -> None:
    """catch_up="all" with overlap="queue": each missed tick has a run, none beside another."""
    async with world() as w:
        schedule = every("5m", catch_up="all", overlap="queue")
        await declare(w, "s", schedule, "schedule-test long")
        await sleep_until(w, TICKS[3] + 60)
        await w.process(serves=LONG)
        await w.until(lambda: len(bodies) == 1)
        await virtual_seconds(400)
        assert len(bodies) == 1
        with anyio.fail_after(10 * PERIOD):
            while len(bodies) < 4:
                await virtual_seconds(10)

        assert bodies == [ticks.run_id("s", tick) for tick in TICKS[:4]]


@pytest.mark.parametrize(
    ("overlap", "expected"), [("skip", [1, 3]), ("allow", [1, 2, 3]), ("cancel-old", [1, 2, 3])]
)
async def test_a_tick_while_the_run_before_goes_on(overlap: Any, expected: list[int]) -> None:
    """A run of one and a half periods: every second tick is skipped, or runs beside it, or
    takes its place.
    """
    async with world() as w:
        await declare(w, "s", every("5m", overlap=overlap), "schedule-test long")
        await w.process(serves=LONG)
        await sleep_until(w, TICKS[2] + 60)

        assert bodies == [ticks.run_id("s", TICKS[i - 1]) for i in expected]
        assert (await register(w, "s")).skipped == 3 - len(expected)
        ended = [(await w.facts(run)).result for run in bodies]
        cancelled = [found is not None and found.status == "cancelled" for found in ended]
        assert cancelled == [overlap == "cancel-old"] * (len(bodies) - 1) + [False]


async def test_a_worker_that_does_not_know_the_workflow_leaves_it_alone() -> None:
    """Only workers that have the code fire; until one comes the ticks are missed."""
    async with world() as w:
        await declare(w, "s", every("5m"), "schedule-test long")
        await w.process(serves=OFTEN)
        await sleep_until(w, TICKS[1] + 60)

        assert (await register(w, "s")).fired == 0


async def test_a_bad_schedule_never_blocks_the_others() -> None:
    """A damaged register, an unknown zone and a year out of range; a good one still fires."""
    async with world() as w:
        good = ScheduleRecord("a", "schedule-test often", CALL, cron("*/5 * * * *"), nonce="n")
        nowhere = msgspec.json.decode(records.encode(good))
        nowhere["name"], nowhere["schedule"]["when"]["tz"] = "b", "Europe/Atlantis"
        never = msgspec.structs.replace(good, name="c", through=1e300)
        for name, body in {
            "a": b"no json",
            "b": msgspec.json.encode(nowhere),
            "c": records.encode(never),
        }.items():
            await w.store.create(names.schedule(name), body, nonce=name)
        await w.process(serves=OFTEN)
        await sleep_until(w, TICKS[1] + 60)

        assert bodies == [ticks.run_id("schedule-test often", t) for t in TICKS[:2]]


async def test_code_that_gives_no_key_never_blocks_other_schedules() -> None:
    """A workflow whose singleton's function raises has no schedule; the others have theirs."""

    def key() -> str:
        raise LookupError("no key")

    bad = workflow(name="schedule-test bad", schedule=every("5m"), singleton=key)(often)
    try:
        async with world() as w:
            await w.process(serves=serves("schedule-test often", bad.name))
            await sleep_until(w, TICKS[1] + 60)

            assert bodies == [ticks.run_id("schedule-test often", t) for t in TICKS[:2]]
            assert await w.store.read(names.schedule(bad.name)) is None
    finally:
        del registry._registry[type(bad.definition), bad.name]


async def test_a_schedule_created_later_is_learned_of() -> None:
    """Within a slow period, by the generation of one small object."""
    async with world() as w:
        await w.process(serves=LONG)
        await virtual_seconds(PERIOD)
        await declare(w, "s", every("2m"), "schedule-test long")
        await virtual_seconds(1.3 * REMOTE_PACE.slow + 120)

        assert len(bodies) == 1


async def test_paused_and_removed_schedules_fire_no_more() -> None:
    """At the very next tick, although the workers have it in memory."""
    async with world() as w:
        await declare(w, "p", every("5m"), "schedule-test long")
        await declare(w, "r", every("5m"), "schedule-test long")
        await w.process(serves=LONG)
        await sleep_until(w, TICKS[0] - 5)
        await firing.change(w.store, "p", lambda there: ticks.paused(there) if there else None)
        await firing.remove(w.store, "r")
        await virtual_seconds(PERIOD)

        assert bodies == []


async def test_jitter_spreads_and_is_kept() -> None:
    """The run starts at its tick plus a delay that depends on nothing but name and tick."""
    async with world() as w:
        await declare(w, "s", every("5m", jitter="2m"), "schedule-test long")
        schedule = (await register(w, "s")).schedule
        await w.process(serves=LONG)
        tick = TICKS[0]
        with anyio.fail_after(2 * PERIOD):
            while not bodies:
                await virtual_seconds(1)

        assert abs(w.store.now() - tick - delay(schedule, "s", tick)) <= 5
        assert bodies == [ticks.run_id("s", tick)]


async def test_until_idle_starts_what_is_due_and_ends() -> None:
    """A worker that ends when nothing is left catches up first."""
    async with world() as w:
        await declare(w, "s", every("5m"), "schedule-test long")
        await sleep_until(w, TICKS[2] + 200)
        process = await w.process(serves=LONG, until_idle=True)
        with anyio.fail_after(3 * PERIOD):
            await process.gone.wait()

        assert bodies == [ticks.run_id("s", TICKS[2])]


@pytest.mark.parametrize("kind", ["unsent", "reply_lost"])
@pytest.mark.parametrize("index", range(8))
async def test_the_store_fails_at_each_call_of_a_tick(kind: Any, index: int) -> None:
    """Whichever call has no answer, applied or not: the tick has one run, and is counted once."""
    async with world() as w:
        seen = []

        def fails(call: Call) -> Fault | None:
            if "schedule" not in call.name or w.store.now() < TICKS[0] - 1:
                return None
            seen.append(call)
            return Fault(kind) if len(seen) == index + 1 else None

        await w.process(serves=OFTEN, faults=fails)
        await sleep_until(w, TICKS[0] + 100)

        assert len(seen) > index
        assert bodies == [ticks.run_id("schedule-test often", TICKS[0])]
        assert (await register(w, "schedule-test often")).fired == 1


@pytest.mark.parametrize("limited", [False, True])
async def test_a_tick_that_was_started_by_half_gets_the_other_half(limited: bool) -> None:
    """Its run has a `start`, and no worker was told of it: whoever looks next tells them."""
    record = ScheduleRecord(
        name="s", workflow="w", input=CALL, schedule=every("5m"), nonce="n", started=[EPOCH],
        limited=limited,
    )  # fmt: skip
    run = ticks.run_id("s", EPOCH)
    async with world() as w:
        assert await firing.carry_out(w.store, record, "v1") == [run]
        (told,) = await _hints(w)
        await w.store.delete(told.name, told.generation)  # as if it had never been written

        assert await firing.carry_out(w.store, record, "v1") == [run]
        assert await firing.carry_out(w.store, record, "v1") == []

        assert [hint.name for hint in await _hints(w)] == [told.name]


async def _hints(w: World) -> list[Stored]:
    """What tells workers of runs."""
    return [s for prefix in ("live/", "queues/") for s in [x async for x in w.store.list(prefix)]]
