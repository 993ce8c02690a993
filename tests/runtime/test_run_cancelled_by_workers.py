"""Cancelling runs that workers hold, will hold, or cannot hold: one outcome, and who is told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

from durable import current, sleep
from durable.client import Handle
from durable.client.handles import recorded
from durable.concurrency import gather
from durable.decorators import step, workflow
from durable.errors import NeedsAttention, NotFound, RunCancelled
from durable.protocol import names
from durable.protocol.retries import Retry
from durable.store.memory import Call, Fault
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import DiesAt, Process, World, world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

bodies: Counter[str] = Counter()
hold: list[float] = [3600.0]  # seconds that `held` takes


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    bodies.clear()
    hold[:] = [3600.0]
    return virtual(request.param)


@step(name="cancel-test held")
async def held(name: str) -> str:
    bodies[name] += 1
    await virtual_seconds(hold[0])
    return name


@step(name="cancel-test released")
async def released(name: str) -> str:
    bodies[f"release {name}"] += 1
    return name


@workflow(name="cancel-test holding")
async def holding(name: str) -> list[str]:
    try:
        return [await held(f"{name} {i}") for i in range(2)]
    finally:
        await released(name)


@workflow(name="cancel-test stateless")
async def stateless() -> int:
    return 7


async def started(world: World, run: str, flow: Any = holding, *args: Any) -> Handle[Any]:
    start = await world.start(run, flow, *(args or (run,) if flow is holding else args))
    return Handle(world.store, run, start)


# -- who holds it ---------------------------------------------------------------------------------


async def test_a_live_holder_learns_of_it_within_seconds() -> None:
    """Its own bell tells it to look; the run's code cleans up and the run ends cancelled."""
    async with world() as w:
        handle = await started(w, "x")
        await w.process()
        await w.until(lambda: bodies["x 0"] == 1)
        before = anyio.current_time()

        assert await handle.cancel(reason="no money") == "requested"
        with pytest.raises(RunCancelled, match="run 'x' was cancelled: no money"):
            await handle.result()

        assert anyio.current_time() - before < 3
        assert bodies == {"x 0": 1, "release x": 1}
        assert await handle.status() == "cancelled"
        assert [(s.name, s.outcome) for s in await handle.steps()] == [
            ("cancel-test held", "cancelled"),
            ("cancel-test released", "value"),
        ]


async def test_asked_twice_it_is_one_request() -> None:
    """The first reason counts, and a run that is over says so."""
    async with world() as w:
        handle = await started(w, "x")

        assert await handle.cancel(reason="first") == "requested"
        assert await handle.cancel(reason="second") == "requested"
        await w.process()
        assert await handle.cancel(wait=True, reason="third") == "cancelled"
        assert await handle.cancel() == "finished"

        with pytest.raises(RunCancelled, match="first"):
            await handle.result()


async def test_a_run_that_nobody_has_begun_is_never_begun() -> None:
    """Its first worker records the outcome without running anything."""
    async with world() as w:
        handle, other = await started(w, "x"), await started(w, "y", stateless)
        await handle.cancel()
        await other.cancel()

        await w.process()

        assert (await recorded(handle)).status == (await recorded(other)).status == "cancelled"
        assert not bodies
        await w.until(lambda: not [name for name in w.there() if name.startswith("live/")])
        assert len([name for name in w.there() if name.startswith("history/")]) == 2


async def test_a_run_whose_worker_died_is_cancelled_by_the_next() -> None:
    """The request is in the record, so it outlives everybody."""
    async with world() as w:
        handle = await started(w, "x")
        one = await w.process()
        await w.until(lambda: bodies["x 0"] == 1)
        one.kill()
        await handle.cancel()
        await w.process()

        assert await handle.cancel(wait=True) == "cancelled"
        assert bodies == {"x 0": 1, "release x": 1}


async def test_a_paused_worker_finds_it_when_it_wakes() -> None:
    """While a process stands still nothing happens; then the cancellation is found."""
    async with world() as w:
        handle = await started(w, "x")
        one = await w.process()
        await w.until(lambda: bodies["x 0"] == 1)
        one.pause()
        await handle.cancel()
        await virtual_seconds(5)
        one.wake()

        assert await handle.cancel(wait=True) == "cancelled"


async def test_a_worker_that_is_stopped_leaves_the_cancellation_to_the_next() -> None:
    """SIGTERM in the middle of a clean-up records nothing (P6); the next worker goes on with it."""
    async with world() as w:
        handle = await started(w, "x")
        one = await w.process(grace=0.0)
        await w.until(lambda: bodies["x 0"] == 1)
        one.worker.stop()
        await handle.cancel()
        await one.gone.wait()
        assert (await w.facts("x")).result is None
        assert (await w.facts("x")).steps == []
        await w.process()

        assert await handle.cancel(wait=True) == "cancelled"


async def test_run_that_needs_attention() -> None:
    """A run that waits for other code cannot be cancelled by this code, and says so."""
    async with world() as w:
        handle = await started(w, "x", stateless)
        name = names.step("x", handle.instance, "no")
        await w.store.create(name, b"damaged", nonce="test")
        await w.process()
        await w.attention("x")

        assert await handle.cancel() == "requested"
        with pytest.raises(NeedsAttention):
            await handle.cancel(wait=True)


async def forget(name: str) -> None:
    bodies[f"undo {name}"] += 1


@step(name="cancel-test noted", undo=forget)
async def noted(name: str) -> str:
    bodies[name] += 1
    return name


drifted: list[bool] = []


@workflow(name="cancel-test changing")
async def changing() -> None:
    await noted("kept")
    await released("new" if drifted else "old")
    await held("x")


async def test_run_whose_code_has_changed() -> None:
    """Cancelled while it needs attention, it ends without its code, and what it did is undone."""
    drifted.clear()
    async with world() as w:
        handle = await started(w, "x", changing)
        one = await w.process()
        await w.until(lambda: bodies["x"] == 1)
        one.kill()
        drifted.append(True)
        await w.process()
        await w.attention("x")
        bodies.clear()

        assert await handle.cancel(wait=True) == "cancelled"

        with pytest.raises(RunCancelled) as raised:
            await handle.result()
        (note,) = raised.value.__notes__
        assert note.startswith("its own clean-up could not run: run 'x' recorded call")
        assert bodies == {"undo kept": 1}
        assert not [name for name in w.there() if name.startswith(("attention/", "live/"))]


async def test_run_that_is_stuck_in_being_cancelled() -> None:
    """Found stuck only then, it needs attention first; asked once more it ends without its code."""
    drifted.clear()
    async with world() as w:
        handle = await started(w, "x", changing)
        one = await w.process()
        await w.until(lambda: bodies["x"] == 1)
        one.kill()
        drifted.append(True)
        await handle.cancel()
        await w.process()
        await w.attention("x")
        bodies.clear()
        await virtual_seconds(600)
        assert await handle.status() == "needs-attention"

        assert await handle.cancel(wait=True) == "cancelled"
        assert bodies == {"undo kept": 1}


async def test_run_that_kills_its_workers() -> None:
    """A cancelled run does not begin again what killed it, so it is not stopped for that."""
    async with world() as w:
        handle = await started(w, "x")
        for _ in range(8):
            one = await w.process()
            before = bodies["x 0"]
            with anyio.move_on_after(200):
                await w.until(lambda before=before: bodies["x 0"] > before)  # type: ignore[misc]  # mypy infers no default of a lambda
            one.kill()
        await w.process()
        await w.attention("x")
        bodies.clear()

        assert await handle.cancel(wait=True) == "cancelled"
        assert bodies == {"release x": 1}


async def test_unknown_runs_and_other_instances() -> None:
    """Nothing is written for an id that is not there, or means another instance now."""
    async with world() as w:
        handle = await started(w, "x")
        there = w.there()
        handle._start.instance = "another"  # as after a restart

        with pytest.raises(NotFound, match="started anew"):
            await handle.cancel()
        assert w.there() == there
        handle._run = "unknown"
        with pytest.raises(NotFound, match="no run 'unknown'"):
            await handle.cancel()


# -- races with the end ---------------------------------------------------------------------------


async def raced(at: int, kind: Any) -> tuple[int, str, str, Any]:
    """Cancel while the worker's `at`th store call about the run is under way.

    Returns how many such calls there were, and what the canceller was told, at once and after.
    """
    bodies.clear()
    hold[:] = [1.0]
    count = 0
    reached = anyio.Event()

    def fault(call: Call) -> Fault | None:
        nonlocal count
        if not any(part in call.name for part in ("runs/", "live/", "history/")):
            return None
        count += 1
        if count != at:
            return None
        reached.set()
        return Fault(kind, seconds=3)

    async with world() as w:
        handle = await started(w, "x")
        await w.process(faults=fault)
        with anyio.move_on_after(60):
            await reached.wait()
        answer = await handle.cancel()
        ended = await handle.cancel(wait=True, timeout=600)
        first = await recorded(handle)
        await virtual_seconds(120)
        assert await recorded(handle) == first
        assert first.status == ended
        assert not [name for name in w.there() if name.startswith(("live/", "attention/"))]
        assert len([name for name in w.there() if name.startswith("history/")]) == 1
        return count, answer, ended, {s.path: s.outcome for s in (await w.facts("x")).steps}


@pytest.mark.parametrize("kind", ["delayed", "slow_reply"])
async def test_cancelled_at_every_store_call(kind: str) -> None:
    """Wherever the request falls there is one outcome, it never changes, and the caller knows."""
    calls, *_ = await raced(0, kind)
    told = Counter[tuple[str, str]]()

    for at in range(1, calls + 1):
        _, answer, ended, outcomes = await raced(at, kind)
        told[answer, ended] += 1
        if answer == "finished":
            assert ended == "completed"
        if ended == "completed":
            assert "cancelled" not in outcomes.values()
        elif outcomes:
            assert list(outcomes.values()).count("cancelled") == 1

    assert set(told) >= {("requested", "cancelled"), ("requested", "completed")}
    assert ("finished", "completed") in told


async def test_cancelled_in_the_very_moment_of_completion() -> None:
    """A value that the function has returned is the outcome; the request comes too late."""
    async with world() as w:
        handle = await started(w, "x")
        hold[:] = [1.0]

        def fault(call: Call) -> Fault | None:
            return Fault("delayed", seconds=9) if call.name.endswith("/result") else None

        await w.process(faults=lambda call: fault(call) if call.verb == "create" else None)
        await w.until(lambda: bodies["release x"] == 1)
        await virtual_seconds(2)

        assert await handle.cancel() == "requested"
        assert await handle.cancel(wait=True) == "completed"


# -- crashes --------------------------------------------------------------------------------------


@workflow(name="cancel-test saga")
async def saga(name: str) -> None:
    await noted(f"{name} 1")
    try:
        await gather(noted(f"{name} 2"), held(name))
    finally:
        await released(name)


@pytest.mark.parametrize("applied", [False, True], ids=["unsent", "applied"])
async def test_whatever_call_its_worker_dies_at(applied: bool) -> None:
    """Cancelled in the middle, the run cleans up and is undone alike, whoever dies when."""
    orders = set()
    at = 0
    while True:
        at += 1
        bodies.clear()
        hold[:] = [3600.0]
        async with world() as w:
            death = DiesAt(at, applied)
            handle = await started(w, "x", saga, "x")
            await w.process(faults=death)
            with anyio.move_on_after(30):
                await w.until(lambda: bodies["x"] > 0)
            await handle.cancel(reason="enough")
            await w.process()

            assert await handle.cancel(wait=True) == "cancelled", f"died at call {at}"

            facts = await w.facts("x")
            order = [(s.path, s.outcome) for s in facts.journal().order if s.kind == "undo"]
            orders.add(tuple(order))
            assert len(order) == len(facts.undos)
            assert bodies["undo x 1"] <= 2, f"died at call {at}"
            if "x" in bodies:
                assert bodies["release x"] in {1, 2}, f"died at call {at}"
        if not death.died:
            break

    assert at > 20
    assert orders <= {
        (("undo/cancel-test%20noted.2", "value"), ("undo/cancel-test%20noted.1", "value")),
        (("undo/cancel-test%20noted.1", "value"),),
        (),
    }


# -- being stopped is not being cancelled ---------------------------------------------------------


@step(name="cancel-test flaky", retry=Retry(attempts=3, first=4, factor=1, jitter=False))
async def flaky(name: str) -> str:
    bodies[name] += 1
    await virtual_seconds(1)
    if current().attempt == 1:
        raise ConnectionError("once")
    return name


@workflow(name="cancel-test mixed")
async def mixed() -> str:
    first = await noted("a")
    second = await flaky("b")
    await sleep(3)
    return first + second + await noted("c")


async def stopped(at: int, kind: Any) -> int:
    """Stop the first worker at its `at`th store call about the run; how many such calls it made."""
    bodies.clear()
    count = 0
    first: list[Process] = []

    def fault(call: Call) -> Fault | None:
        nonlocal count
        if not any(part in call.name for part in ("runs/", "live/", "history/")):
            return None
        count += 1
        if count != at:
            return None
        first[0].worker.stop()
        return Fault(kind, seconds=1)

    async with world() as w:
        first.append(await w.process(faults=fault, grace=0.0))
        handle = await started(w, "x", mixed)
        over = names.result("x", handle.instance)
        await w.until(lambda: first[0].gone.is_set() or over in w.there())
        await w.process()

        assert await w.result("x") == "abc"
        facts = await w.facts("x")
        assert {step.outcome for step in facts.steps} == {"value"}
        assert [attempt.failure.message for attempt in facts.attempts] == ["once"]
        before = await recorded(handle)
        await virtual_seconds(60)
        assert await recorded(handle) == before
    return count


@pytest.mark.parametrize("kind", ["delayed", "slow_reply"])
async def test_stopped_at_every_store_call(kind: Any) -> None:
    """A worker that is told to stop, wherever, records no outcome of what it cuts off (P6).

    So the next one goes on, and the run completes as if nothing had been.
    """
    calls = await stopped(0, kind)
    assert calls > 10

    for at in range(1, calls + 1):
        await stopped(at, kind)
