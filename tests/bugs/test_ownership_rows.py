"""Public bug reports about owning a run, as trials of ours. The id of a row names the report."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import msgspec
import pytest

import durable
from durable import current
from durable.client import Client
from durable.decorators import step, workflow
from durable.errors import Conflict
from durable.protocol import names
from durable.protocol.records import Lease
from durable.runtime.sweeper import Sweeper
from durable.store import Store
from durable.store.memory import Call, Fault, MemoryBackend
from durable.testing import crash_at_every_call, environment
from durable.testing.virtual import virtual_system
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

TTL, MARGIN, SWEEP = 20.0, 2.0, 2.0
BODIES_AT_ONCE = 5

bodies: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _as_new() -> None:
    bodies.clear()


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


@step(name="bug-owned")
async def owned(text: str, seconds: float) -> str:
    bodies[text] += 1
    await virtual_seconds(seconds)
    return text


@workflow(name="bug-one")
async def one(text: str, seconds: float) -> str:
    return await owned(text, seconds)


@workflow(name="bug-many")
async def many(count: int, seconds: float) -> int:
    async def timed(number: int) -> str:
        return await owned(f"item {number}", seconds)

    return len(await durable.map(timed, range(count), limit=BODIES_AT_ONCE))


@workflow(name="bug-typed")
async def typed(number: int) -> int:
    return number


async def test_b01_a_restart_under_the_same_host_name_is_a_stranger() -> None:
    """B01: a new process with the dead one's label takes its run over by the lease's age alone,
    also when every entry of the registry of workers is gone.
    """
    async with world() as w:
        first = await w.process()
        await w.start("r", one, "a", 30.0)
        await w.until(lambda: bodies["a"] == 1)
        first.kill()
        died = w.store.now()
        for name in [n for n in w.there() if n.startswith("presence/")]:
            w.bucket.drop(name)
        second = await w.process()
        second.worker.options = msgspec.structs.replace(second.worker.options, label="w1")

        await w.until(lambda: bodies["a"] == 2)
        assert w.store.now() - died <= TTL + MARGIN + SWEEP
        assert second.worker.id != first.worker.id
        assert await w.result("r") == "a"


async def test_b02_a_draining_worker_takes_nothing_back() -> None:
    """B02: while one worker drains and another starts, the run given back is taken by the other."""
    async with world() as w:
        leaving = await w.process()
        await w.start("r", one, "a", 3.0)
        await w.until(lambda: bodies["a"] == 1)
        leaving.worker.stop()
        coming = await w.process()
        await leaving.gone.wait()

        assert await w.result("r") == "a"
        holders = {claim.worker for claim in (await w.facts("r")).epochs}
        assert holders <= {coming.worker.id}


async def test_b04_of_two_with_the_same_old_list_one_takes() -> None:
    """B04: a worker that acts on an old listing after another took the run does nothing."""
    async with world() as w:
        await w.start("r", one, "a", 30.0)
        [stale] = [stored async for stored in w.store.list(names.marker_folder("default"))]
        await w.process()
        await w.until(lambda: bodies["a"] == 1)
        late = await w.process()
        await virtual_seconds(5)

        assert not await late.worker._holdings.take(stale)
        assert await w.result("r") == "a"
        assert bodies["a"] == 1


async def test_b05_two_bad_runs_of_ten_delay_none_of_the_others() -> None:
    """B05: eight runs end; the one nobody knows stays unowned, the undecodable one says why."""
    async with world() as w:
        for number in range(10):
            await w.start(f"r{number}", typed, number)
        for run, change in (("r3", {"workflow": "bug-gone"}), ("r5", {"input": b'["x"]'})):
            _change_start(w, run, change)
        await w.process()

        for number in set(range(10)) - {3, 5}:
            assert await w.result(f"r{number}") == number
        assert "r5" in (await w.attention("r5")).message
        held = [w.bucket.read(n) for n in w.there() if n.startswith("live/")]
        assert all(stored is not None and not stored.meta.get("holder") for stored in held)


def _change_start(w: Any, run: str, change: dict[str, Any]) -> None:
    """As a foreign client would have written it: in `start` and in the marker's request."""
    marker = names.marker("default", run)
    for name in (names.start(run), marker):
        stored = w.bucket.read(name)
        record = msgspec.json.decode(stored.body)
        target = record.get("request", record) if name == marker else record
        for key, value in change.items():
            target[key] = msgspec.json.decode(value) if isinstance(value, bytes) else value
            if name == marker and key in record:
                record[key] = target[key]
        meta = {**stored.meta, **{k: v for k, v in change.items() if k in stored.meta}}
        w.bucket.put(name, msgspec.json.encode(record), meta, inline=True)


async def test_b07_a_lost_lease_drops_what_has_not_started() -> None:
    """B07: of a hundred queued steps only those in flight at the loss may run twice."""
    async with world() as w:
        first = await w.process()
        await w.start("r", many, 100, 10.0)
        await w.until(lambda: bodies["item 0"] == 1)
        second = await w.process()
        sweeper = Sweeper(store=w.store, runtime_folder=None)
        stored = await w.store.read(names.worker(first.worker.id))
        assert stored is not None
        lease = msgspec.json.decode(stored.body or b"", type=Lease)
        await sweeper._fence(stored, lease, "ttl")
        first.pause()

        assert await w.result("r") == 100
        assert sum(bodies.values()) <= 100 + BODIES_AT_ONCE
        assert second.worker.id in {claim.worker for claim in (await w.facts("r")).epochs}


async def test_b08_a_lost_answer_to_the_outcome_loses_no_outcome() -> None:
    """B08: the create of the result is applied and its answer lost, or the run's marker is touched
    in between: the run is over for everybody, and nothing is listed as running.
    """
    lost: list[str] = []

    def faults(call: Call) -> Fault | None:
        if call.verb == "create" and call.name.endswith("/result") and not lost:
            lost.append(call.name)
            return Fault("reply_lost")
        return None

    async with world() as w:
        await w.process(faults=faults)
        await w.start("r", one, "a", 1.0)

        assert await w.result("r") == "a"
        assert lost
        await w.until(lambda: not [n for n in w.there() if n.startswith("live/")])
        assert len([n for n in w.there() if n.startswith("history/")]) == 1


async def test_b18_the_epoch_fences_an_outside_system() -> None:
    """B18: a step reads its epoch; after a takeover the outside system refuses the older one."""
    writes: list[int] = []
    refused: list[int] = []

    @step(name="bug-outside")
    async def outside() -> int:
        epoch = current().epoch
        with anyio.CancelScope(shield=True):  # as a thread that nobody can stop
            await virtual_seconds(60)
        (writes if epoch >= max(seen, default=0) else refused).append(epoch)
        return epoch

    @workflow(name="bug-B18")
    async def writes_outside() -> int:
        seen.append(current().epoch)
        return await outside()

    seen: list[int] = []
    async with world() as w:
        zombie = await w.process()
        await w.start("r", writes_outside)
        await w.until(lambda: seen == [1])
        zombie.pause()
        await w.process()

        assert await w.result("r") == 2
        assert (writes, refused) == ([2], [1])
        zombie.wake()


async def test_b23_a_crash_is_healed_within_the_ttl_whatever_the_step_may_take() -> None:
    """B23: a step that may take six hours is taken over seconds after its worker's death."""

    @step(name="bug-hours", timeout="6h")
    async def hours() -> str:
        bodies["hours"] += 1
        if bodies["hours"] == 1:
            await anyio.sleep_forever()
        return "done"

    @workflow(name="bug-B23")
    async def takes_hours() -> str:
        return await hours()

    async with world() as w:
        first = await w.process()
        await w.start("r", takes_hours)
        await w.until(lambda: bodies["hours"] == 1)
        await virtual_seconds(5)
        first.kill()
        died = w.store.now()
        await w.process()

        assert await w.result("r") == "done"
        assert w.store.now() - died <= TTL + MARGIN + SWEEP


async def test_b85_fifty_starts_of_one_id_at_once_are_one_run() -> None:
    """B85: from five processes; one body runs, all are told its value, other input is refused."""
    told: list[str] = []
    async with world() as w:
        await w.process()

        async def start_ten() -> None:
            client = Client(Store(MemoryBackend(w.bucket), system=virtual_system(len(told))))
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(start_one, client)

        async def start_one(client: Client) -> None:
            handle = await client.start(one.options(id="x"), "a", 5.0)
            told.append(await handle.result(timeout=60))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(start_ten)

        assert told == ["a"] * 50
        assert bodies == {"a": 1}
        with pytest.raises(Conflict):
            await Client(w.store).start(one.options(id="x"), "b", 5.0)


async def test_b86_another_workflow_under_a_used_id_damages_nothing() -> None:
    """B86: it is refused, and the first run goes on after its worker's death, as what it was."""
    async with world() as w:
        first = await w.process()
        await w.start("x", one, "a", 30.0)
        await w.until(lambda: bodies["a"] == 1)
        before = w.there()
        with pytest.raises(Conflict):
            await Client(w.store).start(typed.options(id="x"), 3)
        assert [name for name in w.there() if name not in before] == []
        first.kill()
        await w.process()

        assert await w.result("x") == "a"
        assert bodies["a"] == 2


def test_b22_a_crash_between_two_records_of_one_fact_doubles_nothing() -> None:
    """B22: at whatever write a worker dies, the run has one outcome and one line of owners."""
    report = crash_at_every_call(one, "a", 1.0)

    assert report.value == "a"
    assert report.body_runs == {"bug-owned.1": 2}


def test_b13_wall_clocks_two_days_apart_rob_nobody() -> None:
    """B13: leases are judged by the store's time; what workers think the date is does not count."""
    with environment() as env:
        world_of = env._world
        make = world_of._system
        shifts = iter([48 * 3600.0, -48 * 3600.0])

        def skewed() -> Any:
            shift = next(shifts)
            system = make()
            return msgspec.structs.replace(system, wall=lambda: system.wall() + shift)

        world_of._system = skewed  # type: ignore[method-assign]  # other clocks for its machines
        env.crash_worker()
        handle = env.client.start(one, "a", 3600.0)
        env.advance("30m")
        second: Any = env._host.call(_second_worker(world_of))
        env.advance("15m")

        assert not second.worker.runners
        assert handle.result() == "a"
        assert bodies["a"] == 1


def _second_worker(world_of: Any) -> Any:
    async def begin() -> Any:
        first = world_of._process
        await world_of._begin_process()
        second, world_of._process = world_of._process, first
        return second

    return begin


@workflow(name="bug-B16", schedule=durable.every("1h"))
async def hourly() -> None:
    await owned("tick", 0.0)


def test_b16_the_only_scheduler_goes_on_after_an_outage() -> None:
    """B16: a process that lost the store for hours starts the next tick by itself, at its time."""
    with environment(schedules=True) as env:
        env.advance("90m")
        before = {run.id for run in env.client.list(workflow="bug-B16")}
        env.faults.outage()
        env.advance("3h")
        during = {run.id for run in env.client.list(workflow="bug-B16")}
        env.faults.clear()
        env.advance("1h")
        after = {run.id for run in env.client.list(workflow="bug-B16")}

    assert len(before) == 1
    assert during == before
    assert any("T05:00:00Z" in run for run in after - before)
