"""Busy workers list a part of the queue each; whatever the parts are, every run is found."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from durable.decorators import step, workflow
from durable.protocol import names, records
from durable.protocol.records import Presence
from durable.store.memory import Call, Fault
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import Process, World, world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

QUEUE = names.marker_folder("default")
BUSY = 5.0 * 1.2 + 2.0  # seconds, at most, between two lists of a part by a busy worker
SLOW = 60.0 * 1.2 + BUSY  # and of the whole queue
LONG = 100_000.0
SERVED = ["peers-test held", "peers-test other"]


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


@step(name="peers-test hold")
async def hold() -> None:
    await virtual_seconds(LONG)


@workflow(name="peers-test held")
async def held() -> None:
    await hold()


@workflow(name="peers-test other")
async def other() -> str:
    return "done"


async def busy(w: World, runs: int, **options: Any) -> Process:
    """A worker that carries so many runs and has room for more."""
    process = await w.process(**options)
    process.backend.page_size = 2
    for i in range(runs):
        await process.worker.start_here(f"{process.worker.id} {i}", w.request(held))
    return process


async def pages(w: World, seconds: float) -> int:
    """How many pages of the queue are listed meanwhile."""
    before = w.bucket.log.count(("list", QUEUE))
    await virtual_seconds(seconds)
    return w.bucket.log.count(("list", QUEUE)) - before


async def test_busy_workers_list_the_queue_once_between_them() -> None:
    """Four of them cost little more than one: their parts, and the whole once in a slow period."""
    async with world() as w:
        await busy(w, 57)
        await virtual_seconds(SLOW)
        alone = await pages(w, 300)
        for _ in range(3):
            await busy(w, 1)
        await virtual_seconds(2 * SLOW)
        together = await pages(w, 300)

        assert alone >= 300 / BUSY * 57 / 2
        assert together < 2 * alone


async def test_what_no_bell_announced_is_found_by_whoever_has_that_part() -> None:
    """As soon as by a single worker, wherever in the queue it stands."""
    async with world() as w:
        for _ in range(3):
            await busy(w, 1)
        await virtual_seconds(2 * SLOW)
        runs = await quiet(w)
        await virtual_seconds(BUSY)

        assert await over(w, runs)


async def show(w: World, **changed: Any) -> None:
    """A worker that shows itself, and does nothing else."""
    worker = w.system.token()
    shown = Presence(
        worker=worker, nonce=worker, queues=["default"],
        workflows=SERVED,
    )  # fmt: skip
    for field, value in changed.items():
        setattr(shown, field, value)
    await w.store.create(names.presence(worker), records.encode(shown), nonce=worker)


async def quiet(w: World, name: str = "quiet") -> list[str]:
    """Start 16 runs that no bell announces."""
    runs = [f"{name} {i}" for i in range(16)]
    for run in runs:
        await w.start(run, other, ring=False)
    return runs


async def over(w: World, runs: list[str]) -> bool:
    return all([(await w.facts(run)).result is not None for run in runs])


async def test_parts_that_nobody_lists_are_found_by_the_slow_list() -> None:
    """Workers that died, or see others than we do, delay runs and lose none."""
    async with world() as w:
        await busy(w, 1, serves=SERVED.__contains__)
        for _ in range(7):
            await show(w)
        await virtual_seconds(SLOW)
        soon = []
        for name in ("a", "b"):  # one of them may meet a list of the whole queue
            runs = await quiet(w, name)
            await virtual_seconds(BUSY)
            soon.append(await over(w, runs))

        assert not all(soon), "the others were counted"
        await virtual_seconds(SLOW)
        assert await over(w, runs)


@pytest.mark.parametrize(
    "changed",
    [{"full": True}, {"queues": ["another"]}, {"workflows": ["peers-test other"]}],
    ids=["full", "another queue", "serves less"],
)
async def test_who_cannot_take_what_is_found_is_given_no_part(changed: dict[str, Any]) -> None:
    """A worker without room, or without the code, would leave what it finds."""
    async with world() as w:
        await busy(w, 1, serves=SERVED.__contains__)
        for _ in range(7):
            await show(w, **changed)
        await virtual_seconds(SLOW)

        runs = await quiet(w)
        await virtual_seconds(BUSY)
        assert await over(w, runs)


async def test_who_no_longer_shows_itself_is_not_counted() -> None:
    """After three minutes its part is listed by the others."""
    async with world() as w:
        for _ in range(7):
            await show(w)
        await virtual_seconds(180)
        await busy(w, 1, serves=SERVED.__contains__)

        runs = await quiet(w)
        await virtual_seconds(BUSY)
        assert await over(w, runs)


async def test_who_ends_while_it_shows_itself_leaves_nothing() -> None:
    """Told to end before its first showing is acknowledged, it waits for that and hides."""

    def slow(call: Call) -> Fault | None:
        shows = call.verb == "create" and call.name.startswith("presence/")
        return Fault("slow_reply", seconds=0.5) if shows else None

    async with world() as w:
        process = await w.process(faults=slow)
        await w.until(lambda: bool(w.hints("presence/")))
        process.worker.stop()
        await process.gone.wait()

        assert not w.hints("presence/")


async def test_junk_among_the_workers_stops_nobody() -> None:
    """An object that is no presence is passed over."""
    async with world() as w:
        for i in range(7):
            await w.store.create(names.presence(f"junk {i}"), b"\x80", nonce="x")
        await busy(w, 1, serves=SERVED.__contains__)

        runs = await quiet(w)
        await virtual_seconds(BUSY)
        assert await over(w, runs)


@step(name="peers-test short")
async def short() -> None:
    await virtual_seconds(20)


@workflow(name="peers-test shortly")
async def shortly() -> None:
    await short()


@pytest.mark.parametrize("until_idle", [False, True])
async def test_a_backlog_is_worked_off_without_another_list(until_idle: bool) -> None:
    """What the first list showed is enough, for as long as the worker is full."""
    async with world() as w:
        for i in range(40):
            await w.start(f"r{i}", shortly)
        await w.process(concurrency=2, until_idle=until_idle)
        await w.until(lambda: w.bucket.log.count(("list", QUEUE)) > 0)
        listed = await pages(w, 390)

        assert listed <= 390 / 48 + 1


async def test_what_a_full_worker_left_rings_for_the_next_with_room() -> None:
    """Another that was full, too, finds it within seconds of a place, not at its slow list."""
    async with world() as w:
        first = await w.process(concurrency=1)
        await first.worker.start_here("long", w.request(held))
        second = await w.process(concurrency=1)
        await second.worker.start_here("short", w.request(shortly))
        await virtual_seconds(10)
        await w.start("left", other, ring=False)
        await virtual_seconds(5)
        first.worker.nudge()  # it lists, and has no room
        await w.result("short")
        ended = anyio.current_time()

        assert await w.result("left") == "done"
        assert anyio.current_time() - ended < 5


async def test_a_full_worker_says_so() -> None:
    """The others then list its part, too."""
    async with world() as w:
        process = await busy(w, 1, concurrency=1)
        await virtual_seconds(75)

        stored = await w.store.read(names.presence(process.worker.id))
        assert stored is not None
        assert b'"full":true' in (stored.body or b"")


async def test_a_worker_that_stops_at_once_hides_itself() -> None:
    """Though it is just showing itself, and a bucket lets no name change twice in a second."""
    shown: list[float] = []

    def as_a_bucket(call: Call) -> Fault | None:
        if not call.name.startswith("presence/"):
            return None
        if call.verb == "create":
            shown.append(anyio.current_time())
            return Fault("slow_reply", 0.3)
        if call.verb == "delete" and anyio.current_time() < shown[0] + 1:
            return Fault("busy")
        return None

    async with world() as w:
        process = await w.process(faults=as_a_bucket)
        await w.until(lambda: bool(shown))
        process.worker.stop()
        await w.until(process.gone.is_set)

        assert await w.names("presence/") == []
