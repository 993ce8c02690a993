"""Owners of a run and the leases they leave: what killing real workers has taught."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from durable.decorators import step, workflow
from durable.protocol import names, records
from durable.protocol.records import Epoch, Seen, Step
from durable.runtime.solitude import Solitude
from durable.store.memory import Call, Fault
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

PATH = f"{names.encode_part('owners-test slow')}.1"

begun: list[int] = []  # epochs of the bodies that began


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    begun.clear()
    return virtual(request.param)


@step(name="owners-test slow")
async def slow() -> int:
    from durable.runtime.scopes import current

    epoch = current().epoch
    begun.append(epoch)
    await virtual_seconds(30)
    return epoch


@workflow(name="owners-test one")
async def one() -> int:
    return await slow()


@pytest.mark.parametrize("way", ["killed", "paused", "drained"])
async def test_an_owner_that_recorded_nothing_still_had_the_first_epoch(way: str) -> None:
    """Its successor finds an empty folder and is the second owner all the same (P3)."""
    async with world() as w:
        first = await w.process(grace=0.0)
        await w.start("r", one)
        await w.until(lambda: begun == [1])
        await w.process()
        match way:
            case "killed":
                first.kill()
            case "paused":
                first.pause()
            case _:
                first.worker.stop()
        await w.until(lambda: begun == [1, 2])
        first.wake()

        assert await w.result("r") == 2
        assert [claim.epoch for claim in (await w.facts("r")).epochs] == [2]


async def test_a_worker_stopped_at_any_moment_leaves_no_lease() -> None:
    """Nor any marker in its name, wherever it stood in taking its runs."""

    def slowly(call: Call) -> Fault:
        return Fault("slow_reply", seconds=0.1)

    for moment in range(20):
        async with world() as w:
            for i in range(8):
                await w.start(f"r{i}", one)
            process = await w.process(grace=2.0, faults=slowly)
            await virtual_seconds(moment / 20)
            process.worker.stop()
            await process.gone.wait()

            assert await w.names(names.WORKERS) == [], f"stopped after {moment / 20} s"
            listed = w.store.list(names.marker_folder("default"))
            assert {s.meta.get("holder") async for s in listed} == {None}


async def test_of_two_runs_that_wait_to_be_alone_one_is_and_the_other_is_let_go() -> None:
    """Neither waits for the other, nor behind it for as long as it may take."""
    solitude = Solitude({"a", "b", "c"})
    alone: dict[str, bool] = {}

    async def resume(run: str) -> None:
        alone[run] = await solitude.wait_alone(run, unless=lambda: False)
        if not alone[run]:
            solitude.leave(run)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resume, "a")
            tasks.start_soon(resume, "b")
            await virtual_seconds(5)
            assert alone == {}
            solitude.leave("c")

    assert sorted(alone.values()) == [False, True]
    assert solitude.closed
    solitude.leave(next(run for run in alone if alone[run]))
    assert not solitude.closed


async def test_a_run_is_not_alone_for_longer_than_it_is_suspicious() -> None:
    """Its first record ends the solitude; the next that waits still waits for it to leave."""
    solitude = Solitude({"a"})
    assert await solitude.wait_alone("a", unless=lambda: False)
    assert solitude.closed

    solitude.end("a")

    assert not solitude.closed
    assert solitude.runs == {"a"}


async def test_a_run_that_waits_to_be_alone_is_let_go_when_its_worker_stops() -> None:
    """The wait ends without solitude, so that the run can be given back at once."""
    solitude, stopped = Solitude({"a", "b"}), anyio.Event()
    answers = []

    async def resume() -> None:
        answers.append(await solitude.wait_alone("a", unless=stopped.is_set))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(resume)
        await virtual_seconds(1)
        stopped.set()
        solitude.changed()

    assert answers == [False]
    assert not solitude.closed


async def test_a_dead_owners_late_record_is_everybodys_value() -> None:
    """It lands while the successor's body runs: that one's outcome is dropped, and it replays."""

    def late(call: Call) -> Fault | None:
        return Fault("late") if call.verb == "create" and "/steps/" in call.name else None

    async with world() as w:
        first = await w.process(faults=late)
        await w.start("r", one)
        await w.until(lambda: any("/steps/" in name for _, name in w.bucket.log))
        first.kill()
        await w.process()
        await w.until(lambda: begun == [1, 2])
        w.bucket.land()

        assert await w.result("r") == 1
        assert begun == [1, 2]
        claims = (await w.facts("r")).epochs
        assert [(claim.epoch, claim.why) for claim in claims] == [(2, "takeover"), (3, "late")]


async def test_an_owner_whose_claim_comes_second_lists_again() -> None:
    """Its claim tells later owners all that the first claimant saw, a late record included."""
    async with world() as w:
        first = await w.process()
        start = await w.start("r", one)
        await w.until(lambda: begun == [1])
        first.kill()
        taken = names.epoch("r", start.instance, 2)

        def rival_comes_first(call: Call) -> None:
            if call.verb != "create" or call.name != taken or call.nth > 1:
                return
            late = Step(
                path=PATH, name="owners-test slow", outcome="value", epoch=1, n=1, nonce="late",
                time=0.0, value=msgspec.Raw(b"1"),
            )  # fmt: skip
            claim = Epoch(2, "rival", "rival", "takeover", "rival", 0.0, {"1": Seen(1, [])})
            for name, record in [(names.step("r", start.instance, PATH), late), (taken, claim)]:
                w.bucket.create(name, records.encode(record), {"nonce": "other"}, True)

        await w.process(faults=rival_comes_first)

        assert await w.result("r") == 1
        claims = {claim.epoch: claim.seen for claim in (await w.facts("r")).epochs}
        assert claims == {2: {"1": Seen(1, [])}, 3: {"1": Seen(1, [])}}
