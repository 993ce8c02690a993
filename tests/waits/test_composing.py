"""`select`, `timeout` and `map` over waits: decisions that are recorded and stay."""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import durable
from durable import gather, map, select, sleep, testing, timeout, wait_event
from durable.client import Handle
from durable.errors import UsageError, WaitTimeout
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import Run, a_step, a_workflow, value_of
from tests.runtime.world import Process, World, world
from tests.virtual_time import virtual_seconds
from tests.waits.long import DAY, parked, pass_time

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


async def _send(w: World, name: str, value: object = None) -> str:
    return await Handle(w.store, "r", (await w.facts("r")).start).send(name, value)


async def _crash_after(w: World, process: Process, part: str) -> None:
    """The worker dies once an object of that name is there; another comes 200 seconds later."""
    await w.until(lambda: any(part in name for name in w.there()))
    process.kill()
    await virtual_seconds(200)
    await w.process()


@a_step
async def _slow(seconds: float) -> float:
    await virtual_seconds(seconds)
    return seconds


@a_step(attempts=1)
async def _even(number: int) -> int:
    await virtual_seconds(1)
    if number % 2:
        raise ValueError(number)
    return number


# -- select ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sent", "won"), [(True, "approved"), (False, "late")])
def test_select_over_event_and_timer(backend: str, sent: bool, won: str) -> None:
    """Approval or escalation: the winner is recorded, and stays so after a crash."""

    @a_workflow
    async def flow() -> list[Any]:
        name, value = await select(approved=wait_event("ok", str), late=sleep(60))
        await _slow(100)
        return [name, value]

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            if sent:
                await virtual_seconds(30)
                await _send(w, "ok", "yes")
            await _crash_after(w, process, "/takes/")
            if not sent:
                await _send(w, "ok", "too late")

            assert await w.result("r") == [won, "yes" if sent else None]
            assert (await w.facts("r")).takes[-1].kind == "select"

    run(backend, main)


def test_select_parks_for_days(backend: str) -> None:
    """Both branches wait: the run is parked until the first of them, and a hint is left for it."""

    @a_workflow
    async def flow() -> str:
        name, _ = await select(approved=wait_event("ok"), late=sleep("2d"))
        await sleep("2d")
        return str(name)

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            (hint,) = await parked(w)
            assert hint.startswith("timers/2023-11-16T")
            process = await pass_time(w, process, 1.99 * DAY)
            await _send(w, "ok")
            await w.until(lambda: any("/takes/" in name for name in w.there()))
            await parked(w)
            await pass_time(w, process, 3 * DAY)

            assert await w.result("r") == "approved"
            await w.until(lambda: not [n for n in w.there() if n.startswith(("timers/", "live/"))])

    run(backend, main, for_ever=20 * DAY)


def test_select_over_steps_and_helpers(backend: str) -> None:
    """A step or a helper may win; the bodies of the others are cancelled and record nothing."""

    @a_workflow
    async def flow() -> list[Any]:
        async def helper() -> str:
            await _slow(5)
            await sleep(3)
            return "helped"

        first = await select(quick=_slow(2), helper=helper(), never=wait_event("never"))
        second = await select(slow=_slow(50), helper=helper())
        return [*first, *second]

    async def main() -> None:
        async with world() as w:
            await w.process(always_park=False)
            await w.start("r", flow)

            assert await w.result("r") == ["quick", 2, "helper", "helped"]
            paths = {step.path for step in (await w.facts("r")).steps}
            assert paths == {"_slow.1", "select.2/helper/_slow.1"}

    run(backend, main)


def test_select_raises_the_error_of_the_first(backend: str) -> None:
    """A branch that ends by an error decides too."""

    @a_workflow
    async def flow() -> str:
        try:
            await select(bad=_even(1), good=_slow(50))
        except ValueError as e:
            return f"failed {e}"
        return "won"

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            assert await w.result("r") == "failed 1"

    run(backend, main)


def test_event_of_a_losing_wait_is_free_again(backend: str) -> None:
    """B76: an event that comes as the timer wins is not lost: a later wait gets it."""

    @a_workflow
    async def flow() -> list[Any]:
        name, _ = await select(ok=wait_event("ok", str), late=sleep(5))
        return [name, await wait_event("ok", str)]

    async def scenario(after: float) -> list[Any]:
        async with world() as w:
            await w.process(always_park=False)
            await w.start("r", flow)
            await virtual_seconds(after)
            await _send(w, "ok", "first")
            await virtual_seconds(20)
            await _send(w, "ok", "second")
            return list(await w.result("r"))

    async def main() -> None:
        seen = [await scenario(after / 10) for after in (15, 45, 52, 58)]

        assert ["ok", "second"] in seen
        assert ["late", "first"] in seen
        assert all(result in (["ok", "second"], ["late", "first"]) for result in seen)

    run(backend, main)


# -- timeout --------------------------------------------------------------------------------------


def test_timeout_cuts_a_block_off(backend: str) -> None:
    """The deadline closes the block's calls; replay cuts it off in the same place."""

    @a_workflow
    async def flow() -> list[str]:
        seen = []
        try:
            async with timeout(60):
                await _slow(10)
                seen.append("one")
                await _slow(100)
                seen.append("two")
        except TimeoutError as e:
            seen.append(str(e).split(" until")[0])
        await _slow(20)
        return seen

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await _crash_after(w, process, "/takes/")

            assert await w.result("r") == [
                "one", "run 'r' waited for the end of block 'timeout.1'"
            ]  # fmt: skip
            assert sorted(s.path for s in (await w.facts("r")).steps) == [
                "_slow.1", "timeout.1/_slow.1"
            ]  # fmt: skip

    run(backend, main)


def test_block_that_ends_in_time(backend: str) -> None:
    """It leaves the claim of its deadline and no decision, also when replayed long after it."""

    @a_workflow
    async def flow() -> list[float]:
        async with timeout(60):
            first = await _slow(10)
            second = await _slow(20)
        await _slow(100)
        return [first, second]

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await _crash_after(w, process, "/steps/timeout.1/_slow.2")

            assert await w.result("r") == [10, 20]
            assert not (await w.facts("r")).takes

    run(backend, main)


def test_timeout_over_a_parked_wait(backend: str) -> None:
    """The deadline of a block wakes a parked run, which may be resumed days later."""

    @a_workflow
    async def flow() -> str:
        try:
            async with timeout("1d"):
                await gather(wait_event("never"), sleep("9d"))
        except WaitTimeout:
            await sleep("1d")
            return "timed out"
        return "ended"

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            (hint,) = await parked(w)
            assert hint.startswith("timers/2023-11-15T")
            process = await pass_time(w, process, 2 * DAY)
            await w.until(lambda: any("/takes/" in name for name in w.there()))
            await parked(w)
            await pass_time(w, process, 2 * DAY)

            assert await w.result("r") == "timed out"
            await w.until(lambda: not [n for n in w.there() if n.startswith(("timers/", "live/"))])

    run(backend, main, for_ever=20 * DAY)


def test_nested_timeouts(backend: str) -> None:
    """The inner deadline leaves the outer block going; the outer one ends both."""

    @a_workflow
    async def flow() -> list[str]:
        seen = []
        try:
            async with timeout(50):
                try:
                    async with timeout(20):
                        await _slow(100)
                except WaitTimeout:
                    seen.append("inner")
                async with timeout(500):
                    await _slow(100)
        except WaitTimeout:
            seen.append("outer")
        return seen

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            assert await w.result("r") == ["inner", "outer"]

    run(backend, main)


# -- several deadlines that have passed -----------------------------------------------------------


async def _within(limit: float, wait: Callable[[], Awaitable[Any]]) -> str:
    try:
        async with timeout(limit):
            await wait()
    except WaitTimeout:
        return "late"
    return "in time"


def test_block_that_ended_in_time_stays_so(backend: str) -> None:
    """Its deadline passes while the run waits elsewhere, parked, and nothing recorded its end."""

    @a_workflow
    async def flow() -> list[str]:
        async def twice() -> None:
            await sleep(200)
            await sleep(200)

        return list(
            await gather(
                _within(600, lambda: sleep(480)),
                _within(600, lambda: sleep(900)),
                _within(600, twice),
                _within(600, lambda: wait_event("soon")),
            )
        )

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await virtual_seconds(300)
            await _send(w, "soon")

            assert await w.result("r") == ["in time", "late", "in time", "in time"]

    run(backend, main)


@a_workflow
def _sync_blocks() -> list[Any]:
    def block(seconds: float) -> str:
        try:
            with durable.sync.timeout(600):
                durable.sync.sleep(seconds)
                threading.Event().wait(0.05)  # real: a thread takes its time
        except WaitTimeout:
            return "late"
        return "in time"

    in_blocks: list[Any] = durable.sync.map(block, [900, 480, 60])
    first, _ = durable.sync.select(late=sleep_of(600), early=sleep_of(480))
    return [*in_blocks, first]


sleep_of = durable.sync.sleep.call


def test_of_threads_as_well(backend: str) -> None:
    """Between two calls a thread takes longer than a task: nothing overtakes it."""
    with testing.environment(backend=backend) as env:  # type: ignore[arg-type]  # a backend's name
        handle = env.client.start(_sync_blocks)
        env.settle()
        assert handle.status() == "parked"

        assert handle.result() == ["late", "in time", "in time", "early"]


@pytest.mark.parametrize("away", [0, 300, 3000])
def test_overdue_waits_are_over_in_the_order_of_their_deadlines(backend: str, away: float) -> None:
    """However many have passed when somebody comes, it is as if somebody had been there."""

    async def heard(seconds: float) -> str:
        try:
            await wait_event("never", timeout=seconds)
        except WaitTimeout:
            return "unheard"
        return ""

    @a_workflow
    async def flow() -> list[Any]:
        async def timer(seconds: float) -> float:
            await sleep(seconds)
            return seconds

        return [
            (await select(late=sleep(600), early=sleep(480), later=sleep(900)))[0],
            (await select(late=sleep(600), early=heard(480), later=heard(900)))[0],
            await map(timer, [600, 480, 900], enough=1),
            await _within(600, lambda: select(a=wait_event("never"), b=sleep(480))),
        ]

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            for _ in range(8):
                await virtual_seconds(25)
                if away:
                    process = await pass_time(w, process, away)
            assert await w.result("r") == ["early", "early", [480], "in time"]

    run(backend, main)


def test_an_event_that_came_early_is_for_one_wait_and_ends_no_other(backend: str) -> None:
    """Whoever wakes the run finds one event for three waits: the others are over in time."""

    @a_workflow
    async def flow() -> list[str]:
        async def heard(_: int) -> str:
            try:
                value: str = await wait_event("go", timeout=600)
            except WaitTimeout:
                return "unheard"
            return value

        return await map(heard, range(3))

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await parked(w)
            process.kill()
            assert await _send(w, "go", "heard") == "accepted"
            await virtual_seconds(900)
            await w.process()

            assert sorted(await w.result("r")) == ["heard", "unheard", "unheard"]

    run(backend, main)


# -- map ------------------------------------------------------------------------------------------


def test_map_tolerates(backend: str) -> None:
    """So many items may fail; what succeeded comes in order, with the errors if asked for."""

    @a_workflow
    async def flow() -> list[Any]:
        some = await map(_even, range(6), tolerate=3)
        share = await map(_even, range(6), tolerate="50%", collect=True)
        try:
            await map(_even, [1, 3, 0], tolerate=1)
        except ValueError as e:
            return [some, [str(item) for item in share], e.__notes__]
        return []

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            assert await w.result("r") == [
                [0, 2, 4], ["0", "1", "2", "3", "4", "5"], ["2 branches failed; 1 may"]
            ]  # fmt: skip

    run(backend, main)


def test_map_until_enough(backend: str) -> None:
    """First success: the others are closed, and the same one wins on replay."""

    @a_workflow
    async def flow() -> list[Any]:
        async def mirror(seconds: float) -> float:
            await sleep(seconds)
            return seconds

        first = await map(mirror, [9, 3, 6], enough=1)
        even = await map(_even, [1, 3, 4], enough=1)
        await _slow(100)
        return [first, even]

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await _crash_after(w, process, "/takes/2")

            assert await w.result("r") == [[3], [4]]
            assert len((await w.facts("r")).takes) == 2

    run(backend, main)


@pytest.mark.parametrize("tolerate", ["x%", "110%", -1, "3", True])
def test_unreadable_tolerance_is_refused(backend: str, tolerate: Any) -> None:
    """A share or a count, nothing else; a share needs items that can be counted."""

    async def main() -> None:
        with pytest.raises(UsageError):
            await map(_even, [1], tolerate=tolerate)
        with pytest.raises(UsageError, match="how many"):
            await map(_even, iter([1]), tolerate="10%")

    run(backend, main)


@pytest.mark.parametrize(
    ("fn", "items", "options"),
    [
        *[(_even, [2], {"limit": limit}) for limit in (0, -1, 1.5, math.nan, True, "3", None)],
        *[(_even, [2], {"enough": enough}) for enough in (0, -1, 1.5, math.nan, True, "3")],
        (5, [2], {}), (_even, None, {}), (_even, 5, {}),
    ],
)  # fmt: skip
def test_what_cannot_be_mapped_is_refused(
    backend: str, fn: Any, items: Any, options: dict[str, Any]
) -> None:
    """Where it is called, before any item is begun; the run can go on without it."""

    @a_workflow
    async def flow() -> str:
        with pytest.raises(UsageError, match=r"^map"):
            map(fn, items, **options)
        return "went on"

    async def main() -> None:
        one = Run(flow)
        assert value_of(await one.execute()) == "went on"
        assert not one.steps()

    run(backend, main)
    with pytest.raises(UsageError, match=r"^map"):
        durable.sync.map(fn, items, **options)


def test_items_that_end_with_an_error(backend: str) -> None:
    """What gives the items raises its own error out of `map`, live and on replay."""

    def items() -> Iterator[int]:
        yield from (0, 2)
        raise KeyError("the list is torn")

    @a_workflow
    async def flow() -> str:
        try:
            await map(_even, items(), limit=1)
        except KeyError as e:
            return str(e)
        return ""

    async def main() -> None:
        one = Run(flow)
        for _ in range(2):
            assert value_of(await one.execute()) == "'the list is torn'"
        with pytest.raises(KeyError):
            await map(_even, items())

    run(backend, main)


def test_select_needs_calls(backend: str) -> None:
    """Without calls there is nothing to wait for; what is no call is refused."""

    async def main() -> None:
        with pytest.raises(UsageError):
            select()
        with pytest.raises(UsageError, match="select takes calls"):
            select(a=3)  # type: ignore[arg-type]  # wrong on purpose

    run(backend, main)


def test_closed_inline_workflow_records_nothing(backend: str) -> None:
    """A workflow that runs inline in a closed branch is closed with it, whatever it was doing."""

    @a_workflow
    async def inner() -> None:
        await _slow(50)

    @a_workflow
    async def flow() -> str:
        try:
            await gather(inner(), _even(1))
        except ValueError:
            name, _ = await select(inner=inner(), quick=_slow(1))
            return str(name)
        return "ended"

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)

            assert await w.result("r") == "quick"
            assert {s.outcome for s in (await w.facts("r")).steps} == {"value", "error"}

    run(backend, main)
