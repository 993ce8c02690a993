"""Cancelling runs that wait, in place or parked, and clean-up that waits itself."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import durable
from durable import gather, sleep, wait_event
from durable.client import Handle
from durable.decorators import step, workflow
from durable.errors import RunCancelled
from durable.protocol.retries import Retry
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import a_step, a_workflow
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds
from tests.waits.long import DAY, parked

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

said: list[Any] = []


@pytest.fixture(autouse=True)
def _clear() -> None:
    said.clear()


@a_step
async def note(what: str) -> str:
    said.append(what)
    return what


async def cancelled(w: World, flow: Any, *, reached: int = 0) -> dict[str, str]:
    """Start the run, cancel it once it is parked, or has noted so much; its recorded outcomes."""
    start = await w.start("r", flow)
    process = await w.process()
    handle: Handle[Any] = Handle(w.store, "r", start)
    if reached:
        await w.until(lambda: len(said) == reached)
        await virtual_seconds(1)
    else:
        await parked(w)
    asked = anyio.current_time()
    assert await handle.cancel(wait=True) == "cancelled"
    assert anyio.current_time() - asked < 5
    facts = await w.facts("r")
    await w.until(lambda: not [name for name in w.there() if name.startswith(("live/", "timers/"))])
    process.kill()
    return {step.path: step.outcome for step in facts.journal().order}


def test_parked_sleep(backend: str) -> None:
    """A parked run is woken for it: the sleep is cancelled, the run cleans up."""

    @a_workflow
    async def flow() -> None:
        try:
            await sleep(30 * DAY)
        finally:
            await note("cleaned")

    async def main() -> None:
        async with world() as w:
            assert await cancelled(w, flow) == {"sleep.1": "cancelled", "note.1": "value"}
            assert said == ["cleaned"]

    run(backend, main)


def test_parked_event_wait(backend: str) -> None:
    """The decision that the wait is cancelled competes with events in one chain."""

    @a_workflow
    async def flow() -> None:
        try:
            await wait_event("paid", str)
        finally:
            await note("cleaned")

    async def main() -> None:
        async with world() as w:
            outcomes = await cancelled(w, flow)
            assert outcomes == {"event-paid.1": "cancelled", "note.1": "value"}
            assert [take.outcome for take in (await w.facts("r")).takes] == ["cancelled"]

    run(backend, main)


def test_parked_back_off(backend: str) -> None:
    """A step that waits long for its next attempt is not attempted again."""

    @a_step(retry=Retry(attempts=5, first=DAY, max=DAY, jitter=False))
    async def failing() -> None:
        said.append("tried")
        raise ConnectionError

    @a_workflow
    async def flow() -> None:
        await failing()

    async def main() -> None:
        async with world() as w:
            assert await cancelled(w, flow) == {"failing.1": "cancelled"}
            assert said == ["tried"]

    run(backend, main)


def test_waits_side_by_side(backend: str) -> None:
    """Each of them is cancelled, whatever it waits for."""

    @a_workflow
    async def flow() -> None:
        await gather(sleep(30 * DAY), wait_event("paid", str), wait_event("sent", timeout=DAY))

    async def main() -> None:
        async with world() as w:
            outcomes = await cancelled(w, flow)
            assert outcomes == {
                "sleep.1": "cancelled", "event-paid.1": "cancelled", "event-sent.1": "cancelled"
            }  # fmt: skip

    run(backend, main)


def test_wait_in_place(backend: str) -> None:
    """So it is with a wait beside a step that keeps the run from being parked."""

    @a_step
    async def long() -> None:
        said.append("begun")
        await virtual_seconds(1000)

    @a_workflow
    async def flow() -> None:
        await gather(sleep(30 * DAY), wait_event("paid", str), long())

    async def main() -> None:
        async with world() as w:
            outcomes = await cancelled(w, flow, reached=1)
            assert set(outcomes.values()) == {"cancelled"}
            assert len(outcomes) == 3

    run(backend, main)


def test_a_sleep_that_is_over_is_over(backend: str) -> None:
    """Cancelled after its deadline and before anybody noticed, it returns; the next call raises."""

    @a_workflow
    async def flow() -> None:
        await sleep(DAY)
        said.append("slept")
        await note("never")

    async def main() -> None:
        async with world() as w:
            start = await w.start("r", flow)
            process = await w.process()
            await parked(w)
            process.worker.stop()
            await process.gone.wait()
            await virtual_seconds(2 * DAY)
            handle: Handle[Any] = Handle(w.store, "r", start)
            await handle.cancel()
            await w.process()

            assert await handle.cancel(wait=True) == "cancelled"
            assert said == ["slept"]
            assert [(s.path, s.outcome) for s in (await w.facts("r")).journal().order] == [
                ("sleep.1", "value"),
                ("note.1", "cancelled"),
            ]

    run(backend, main)


def test_clean_up_may_wait(backend: str) -> None:
    """Its sleeps park the run like others; it goes on where it stood."""

    @workflow(name=f"cancelled-waits cleaning {backend}", cleanup_timeout="10m")
    async def flow() -> None:
        try:
            await sleep(30 * DAY)
        finally:
            said.append(durable.unwinding())
            await note("one")
            await sleep("5m")
            await note("two")

    async def main() -> None:
        async with world() as w:
            start = await w.start("r", flow)
            await w.process()
            await parked(w)
            handle: Handle[Any] = Handle(w.store, "r", start)
            await handle.cancel()
            await w.until(lambda: "one" in said)
            await parked(w)

            with pytest.raises(RunCancelled):
                await handle.result()

            begun = [s.time for s in await handle.steps()]
            assert 300 <= begun[-1] - begun[0] < 310
            assert [word for word in said if isinstance(word, str)] == ["one", "two"]
            # Once for the first park, then cancelled, then for the second park, then again.
            told = [word for word in said if isinstance(word, bool)]
            assert (told[0], told[-1]) == (True, False)

    run(backend, main)


def test_clean_up_that_waits_for_ever(backend: str) -> None:
    """A parked clean-up is woken when its time is over."""

    @workflow(name=f"cancelled-waits waiting {backend}", cleanup_timeout="10m")
    async def flow() -> None:
        try:
            await sleep(30 * DAY)
        finally:
            await note("waits")
            await wait_event("never")

    async def main() -> None:
        async with world() as w:
            start = await w.start("r", flow)
            await w.process()
            await parked(w)
            handle: Handle[Any] = Handle(w.store, "r", start)
            await handle.cancel()
            await w.until(lambda: "waits" in said)
            asked = anyio.current_time()

            assert await handle.cancel(wait=True) == "cancelled"

            assert 590 < anyio.current_time() - asked < 610
            assert [(s.path, s.outcome) for s in (await w.facts("r")).journal().order] == [
                ("sleep.1", "cancelled"),
                ("note.1", "value"),
                ("event-never.1", "cancelled"),
            ]

    run(backend, main)


def test_an_undo_action_that_waits_long(backend: str) -> None:
    """Between two attempts of an undo action the run is parked; then the rest is undone."""

    @step(
        name=f"cancelled-waits give back {backend}",
        retry=Retry(attempts=3, first=600, max=600, jitter=False),
    )
    async def give_back(what: str) -> None:
        said.append(("tried", what))
        if said.count(("tried", what)) < 2 and what == "b":
            raise ConnectionError

    @step(name=f"cancelled-waits get {backend}", undo=give_back)
    async def get(what: str) -> str:
        return what

    @a_workflow
    async def flow() -> None:
        await get("a")
        await get("b")
        raise ValueError("no")

    async def main() -> None:
        async with world() as w:
            await w.start("r", flow)
            process = await w.process()
            await w.until(lambda: ("tried", "b") in said)
            await parked(w)
            process.kill()
            await w.process()

            assert await w.result("r") == "no"
            assert said == [("tried", "b"), ("tried", "b"), ("tried", "a")]
            assert (await w.facts("r")).result.failure.notes == []  # type: ignore[union-attr]  # it is over

    run(backend, main)
