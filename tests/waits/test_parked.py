"""What others see of a parked run, and what wakes it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from durable import gather, sleep, wait_event
from durable.client import Handle
from durable.client.listing import RunList
from durable.client.purging import purge
from durable.protocol import names
from durable.runtime import timers
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import a_step, a_workflow
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds
from tests.waits.long import DAY, concerns, parked, pass_time, stop

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@a_workflow
async def _month() -> str:
    await sleep("30d")
    return "a month later"


async def _handle(w: World, run: str = "r") -> Handle[Any]:
    return Handle(w.store, run, (await w.facts(run)).start)


def test_status_and_list_say_parked(backend: str) -> None:
    """The status and the list say `parked` and until when; the open wait stands in the steps."""

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", _month)
            await parked(w)
            handle = await _handle(w)

            status = await handle.status()
            assert (status, status.reason) == ("parked", "until 2023-12-14T22:13:20Z")
            listed = [s async for s in RunList(w.store, workflow=None, status=None, limit=None)]
            assert [(s.id, s.status, s.workflow) for s in listed] == [("r", "parked", _month.name)]
            assert listed[0].status.reason.startswith("until 2023-12-14T22:13:2")
            assert [(s.path, s.outcome) for s in await handle.steps()] == [("sleep.1", "waiting")]
            with pytest.raises(TimeoutError):
                await handle.result(timeout=60)

    run(backend, main)


def test_until_idle_leaves_parked_runs(backend: str) -> None:
    """A worker that ends when idle promotes what is due, and leaves what is parked."""

    async def main() -> None:
        async with world() as w:
            process = await w.process(until_idle=True)
            await w.start("r", _month)
            await process.gone.wait()
            assert names.marker("default", "r") not in w.there()

            await virtual_seconds(31 * DAY)
            late = await w.process(until_idle=True)
            await late.gone.wait()
            assert await w.result("r") == "a month later"

    run(backend, main, for_ever=60 * DAY)


def test_another_worker_wakes_it(backend: str) -> None:
    """Whoever lists the hints wakes the run: the worker that parked it may be gone."""

    async def main() -> None:
        async with world() as w:
            await w.start("r", _month)
            first = await w.process()
            await parked(w)
            first.kill()
            await virtual_seconds(29.99 * DAY)
            for _ in range(3):
                await w.process()

            assert await w.result("r") == "a month later"
            epochs = [e.why for e in (await w.facts("r")).epochs]
            assert epochs == ["wake"]  # one of them, once

    run(backend, main, for_ever=60 * DAY)


def test_a_body_in_flight_forbids_the_park(backend: str) -> None:
    """A run stays while any step of it runs, and while a task of it awaits something else."""

    @a_step
    async def long() -> str:
        await virtual_seconds(100)
        return "long"

    @a_workflow
    async def flow() -> list[Any]:
        async def own() -> str:
            await virtual_seconds(120)  # no durable wait: parked, it would begin anew
            return "own"

        return list(await gather(sleep("1h"), long(), own()))

    async def main() -> None:
        async with world() as w:
            await w.process(always_park=True)
            await w.start("r", flow)
            await virtual_seconds(115)
            assert names.marker("default", "r") in w.there()
            await virtual_seconds(20)
            assert names.marker("default", "r") not in w.there()

    run(backend, main)


def test_touch_while_parking_is_not_lost(backend: str) -> None:
    """An event sent at any store call of the park wakes the run: no wake-up is lost."""

    @a_workflow
    async def flow() -> str:
        return str(await wait_event("go", str))

    async def scenario(at: int) -> bool:
        async with world() as w:
            process = await w.process()
            seen = 0
            send = anyio.Event()

            def watch(call: Any) -> None:
                nonlocal seen
                if concerns(call.name):
                    seen += 1
                    if seen == at:
                        send.set()

            process.backend.faults = watch  # type: ignore[attr-defined]  # the store of a worker of the test
            await w.start("r", flow)
            with anyio.move_on_after(60):
                await send.wait()
                await (await _handle(w)).send("go", "went")
                assert await w.result("r") == "went"
                return True
            return False

    async def main() -> None:
        at = 1
        while await scenario(at):
            at += 1
        assert at > 5

    run(backend, main)


def test_drained_while_waiting_in_place(backend: str) -> None:
    """B91: a worker that is stopped during a short sleep records nothing; another goes on."""

    @a_workflow
    async def flow() -> str:
        await sleep(9)
        return "slept"

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await virtual_seconds(3)
            await stop(process)
            assert not (await w.facts("r")).result
            await w.process()

            assert await w.result("r") == "slept"
            assert not (await w.facts("r")).steps

    run(backend, main)


def test_a_thousand_timers_of_one_moment(backend: str) -> None:
    """Many runs that are due at once are all woken, by one list."""

    @a_workflow
    async def flow() -> None:
        await sleep("1d")

    async def main() -> None:
        async with world() as w:
            process = await w.process(concurrency=10)
            for i in range(100):
                await w.start(f"r{i}", flow)
            for i in range(100):
                await parked(w, f"r{i}")
            await pass_time(w, process, DAY)
            for i in range(100):
                await w.result(f"r{i}")
            await w.until(lambda: not [n for n in w.there() if n.startswith(("timers/", "live/"))])

    run(backend, main)


def test_purging_a_parked_run_leaves_nothing(backend: str) -> None:
    """A run that is purged while it is parked takes its hints with it."""

    @a_workflow
    async def flow() -> None:
        await gather(sleep("30d"), wait_event("never"))

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await parked(w)
            await stop(process)
            await purge(w.store, "r", force=True)

            assert [name for name in w.there() if "/r" in name] == [names.start("r")]

    run(backend, main)


def test_a_run_that_is_woken_too_early_is_not_lost(backend: str) -> None:
    """It stands again behind the same hint, also if that is past by the clock of its worker."""

    @a_workflow
    async def nap() -> str:
        await sleep(1000.0004)
        return "awake"

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", nap)
            await parked(w)
            due = (await w.facts("r")).waits[0].due
            assert due is not None
            await stop(process)
            await virtual_seconds(due - 0.0001 - w.store.now())
            (hint,) = [stored async for stored in w.store.list(names.TIMERS)]
            assert (await timers.promote(w.store, hint)).woken
            await w.process()

            assert await w.result("r") == "awake"
            result = (await w.facts("r")).result
            assert result is not None
            assert due <= result.time < due + 2

    run(backend, main)
