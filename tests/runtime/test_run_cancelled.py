"""The cancellation of a run: outcomes of its calls, clean-up, and the same again on replay."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import durable
from durable.errors import RunCancelled
from durable.protocol.retries import Retry
from durable.runtime.closing import Closing, Finished, Stopped
from durable.runtime.execution import Execution
from durable.store.memory import Call, Fault
from durable.testing.virtual import virtual_bucket
from tests.runtime.clocks import BACKENDS, run, run_with_threads
from tests.runtime.runs import Run, a_step, a_workflow, value_of
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)

seen: list[Any] = []  # what user code noticed; each test begins with `seen.clear()`


@pytest.fixture(autouse=True)
def _clear() -> None:
    seen.clear()


@a_step
async def s(x: int) -> int:
    return x * 10


@a_step
async def slow(x: int) -> int:
    try:
        await virtual_seconds(60)
    finally:
        seen.append(f"body {x} left")
    return x


@a_step
async def clean(x: int) -> int:
    await virtual_seconds(1)
    return x


@a_step(attempts=1)
async def bad(x: int) -> int:
    raise ValueError(f"bad {x}")


def cancelling(one: Run, *, after: float = 5.0) -> Callable[[Execution], Awaitable[None]]:
    """Cancel the run, and tell whoever executes it, after some seconds."""

    async def meanwhile(execution: Execution) -> None:
        await virtual_seconds(after)
        execution.cancelling.ask(one.put_cancel("changed my mind"))

    return meanwhile


def cancelled(backend: str, one: Run, *, after: float = 5.0) -> Closing | None:
    """How the run ends if it is cancelled after some seconds, in which time stands still."""

    async def main() -> Closing | None:
        live = await one.execute(meanwhile=cancelling(one, after=after))
        assert isinstance(live, Finished), live
        first = list(seen)
        begun = one.begun
        seen.clear()
        replay = await one.execute()
        assert replay == live or (replay.cancelled and live.cancelled)  # type: ignore[union-attr]  # both are there
        assert one.begun == []
        one.progress.extend(f"begin {path}" for path in begun)
        noticed = [entry for entry in first if not str(entry).startswith("body")]
        assert seen == noticed
        seen[:] = first
        return live

    return run(backend, main)


def outcomes(one: Run) -> list[tuple[str, str]]:
    return [(step.path, step.outcome) for step in one.steps().values()]


def is_cancelled(closing: Closing | None) -> bool:
    assert isinstance(closing, Finished), closing
    return closing.cancelled


# -- where it arrives -----------------------------------------------------------------------------


@backends
def test_an_open_call_raises_it(backend: str) -> None:
    """The body is cancelled, the call claimed as cancelled, and the run with it."""

    async def w() -> int:
        await s(1)
        return int(await slow(2))

    one = Run(a_workflow(w))

    closing = cancelled(backend, one)

    assert is_cancelled(closing)
    assert seen == ["body 2 left"]
    assert outcomes(one) == [("s.1", "value"), ("slow.1", "cancelled")]


@backends
def test_a_call_made_later_never_runs(backend: str) -> None:
    """Code between two calls is not interrupted; its next call is claimed without a body."""

    async def w() -> int:
        await virtual_seconds(10)
        return int(await s(1))

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert one.begun == []
    assert outcomes(one) == [("s.1", "cancelled")]


@backends
def test_says_why(backend: str) -> None:
    """The error names the run and the reason given."""

    async def w() -> str:
        try:
            await slow(1)
        except RunCancelled as e:
            return str(e)
        return "no"

    one = Run(a_workflow(w))

    assert value_of(cancelled(backend, one)) == "run 'run' was cancelled: changed my mind"


@backends
def test_back_off(backend: str) -> None:
    """A call that waits for its next attempt is cancelled where it waits."""

    async def w() -> int:
        return int(await failing(1))

    @a_step(retry=Retry(attempts=5, first=9, max=9))
    async def failing(x: int) -> int:
        raise ValueError(x)

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert outcomes(one) == [("failing.1", "cancelled")]
    assert len(one.attempts()) == 1


@backends
def test_body_that_fails_in_being_cancelled(backend: str) -> None:
    """What a body raises because it is cancelled is no failed attempt, and is kept for people."""

    @a_step
    async def clumsy(x: int) -> int:
        try:
            await anyio.sleep_forever()
        except BaseException as e:
            raise ValueError("gone") from e
        return x

    async def w() -> int:
        return int(await clumsy(1))

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    (step,) = one.steps().values()
    assert step.outcome == "cancelled"
    assert step.failure is not None
    assert step.failure.message == "gone"
    assert one.attempts() == []


@backends
def test_body_that_ends_nevertheless(backend: str) -> None:
    """A body that has a value all the same has an outcome; the next call is cancelled."""

    @a_step
    async def stubborn(x: int) -> int:
        with anyio.CancelScope(shield=True):
            await virtual_seconds(10)
        return x

    async def w() -> int:
        seen.append(await stubborn(1))
        return int(await s(2))

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert outcomes(one) == [("stubborn.1", "value"), ("s.1", "cancelled")]


@backends
def test_same_turn_as_the_end_of_a_body(backend: str) -> None:
    """Cancelled in the very turn in which a body ends, the run is cancelled at the next call."""
    event: list[anyio.Event] = []

    @a_step
    async def waits(x: int) -> int:
        await event[0].wait()
        return x

    @a_step
    async def waits_in_a_timeout(x: int) -> int:
        with anyio.fail_after(1000):
            await event[0].wait()
        return x

    async def meanwhile(execution: Execution) -> None:
        await virtual_seconds(5)
        event[0].set()
        execution.cancelling.ask(one.put_cancel())

    for body in (waits, waits_in_a_timeout):

        async def w(body: Any = body) -> int:
            first = await body(1)
            return int(first + await s(2))

        one = Run(a_workflow(w))

        async def main(one: Run = one) -> None:
            event[:] = [anyio.Event()]
            assert is_cancelled(await one.execute(meanwhile=meanwhile))
            first = outcomes(one)
            assert first[-1][1] == "cancelled"
            assert is_cancelled(await one.execute())
            assert outcomes(one) == first

        run(backend, main)


@backends
def test_users_shield(backend: str) -> None:
    """A shield of user code keeps out cancellations of the event loop, not this outcome."""

    async def w() -> int:
        with anyio.CancelScope(shield=True):
            return int(await slow(1))

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert outcomes(one) == [("slow.1", "cancelled")]


@backends
def test_while_an_outcome_is_written(backend: str) -> None:
    """An outcome on its way into the record is handed over; the next call is cancelled."""

    def late(call: Call) -> Fault | None:
        slow_one = call.verb == "create" and call.name.endswith("steps/s.1")
        return Fault("delayed", seconds=20) if slow_one else None

    async def w() -> int:
        seen.append(await s(1))
        return int(await s(2))

    one = Run(a_workflow(w), faults=late)

    assert is_cancelled(cancelled(backend, one))
    assert outcomes(one) == [("s.1", "value"), ("s.2", "cancelled")]


# -- concurrently ---------------------------------------------------------------------------------


@backends
def test_gather(backend: str) -> None:
    """It comes to each branch, each cleans up, then to whoever gathered."""

    async def branch(x: int) -> None:
        try:
            await slow(x)
        finally:
            seen.append(await clean(x))

    async def w() -> None:
        try:
            await durable.gather(branch(1), branch(2), s(3))
        finally:
            seen.append(await clean(4))

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert sorted(entry for entry in seen if isinstance(entry, int)) == [1, 2, 4]
    assert seen[-1] == 4
    assert dict(outcomes(one)) == {
        "s.1": "value",
        "gather.1/0/slow.1": "cancelled",
        "gather.1/1/slow.1": "cancelled",
        "gather.1/0/clean.1": "value",
        "gather.1/1/clean.1": "value",
        "clean.1": "value",
    }


@backends
def test_branch_that_was_between_calls(backend: str) -> None:
    """The clean-up of one branch is no licence for another to go on."""

    async def quick() -> None:
        try:
            await slow(1)
        finally:
            await clean(1)

    async def late() -> None:
        await virtual_seconds(20)
        await s(2)

    async def w() -> None:
        await durable.gather(quick(), late())

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert dict(outcomes(one))["gather.1/1/s.1"] == "cancelled"


@backends
def test_failure_while_cleaning_up_in_a_branch(backend: str) -> None:
    """Another branch is left to clean up, and the failure becomes a note."""

    async def failing() -> None:
        try:
            await slow(1)
        finally:
            await bad(1)

    async def careful() -> None:
        try:
            await slow(2)
        finally:
            await clean(2)
            await clean(3)

    async def w() -> list[str]:
        try:
            await durable.gather(failing(), careful())
        except RunCancelled as e:
            return e.__notes__
        return []

    one = Run(a_workflow(w))

    assert value_of(cancelled(backend, one)) == ["while cleaning up: ValueError: bad 1"]
    assert dict(outcomes(one))["gather.1/1/clean.2"] == "value"


@backends
def test_map_starts_no_more_items(backend: str) -> None:
    """Items that run are cancelled, those behind them are never begun."""

    async def w() -> None:
        await durable.map(slow, range(100), limit=3)

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert len(one.begun) == 3
    assert {outcome for _, outcome in outcomes(one)} == {"cancelled"}
    assert len(outcomes(one)) <= 4


@backends
def test_gather_in_clean_up(backend: str) -> None:
    """Helpers that a clean-up gathers belong to it, wherever they run."""

    async def helper(x: int) -> int:
        return int(await clean(x))

    async def w() -> None:
        try:
            await slow(1)
        finally:
            seen.append(await durable.gather(helper(1), helper(2)))
            seen.append(await durable.map(helper, [3, 4]))

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert seen[-2:] == [(1, 2), [3, 4]]


@backends
def test_task_group(backend: str) -> None:
    """In a task group it arrives as a group of nothing else, which counts as cancelled."""

    async def w() -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(slow, 1)
                tasks.start_soon(slow, 2)
        except BaseExceptionGroup:
            seen.append(await clean(3))
            raise

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert seen[-1] == 3
    assert dict(outcomes(one)) == {
        "slow.1": "cancelled", "slow.2": "cancelled", "clean.1": "value",
    }  # fmt: skip


@backends
def test_clean_up_under_a_task_groups_cancellation(backend: str) -> None:
    """Code beside a cancelled call may clean up behind a shield, as in any event loop."""

    async def w() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow, 1)
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    seen.append(await clean(2))

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert dict(outcomes(one)) == {"slow.1": "cancelled", "clean.1": "value"}


@pytest.mark.parametrize("kind", ["select", "enough", "tolerant", "timeout"])
@backends
def test_words_that_decide(backend: str, kind: str) -> None:
    """Nothing is decided by branches that are cancelled: each cleans up, then it is raised."""

    async def branch(x: int) -> None:
        try:
            await slow(x)
        finally:
            seen.append(await clean(x))

    async def by_select() -> None:
        await durable.select(one=branch(1), two=branch(2))

    async def by_enough() -> None:
        await durable.map(branch, [1, 2], enough=1)

    async def tolerantly() -> None:
        await durable.map(branch, [1, 2], tolerate=2, collect=True)

    async def in_time() -> None:
        async with durable.timeout("1h"):
            await durable.gather(branch(1), branch(2))

    ways = {
        "select": by_select, "enough": by_enough, "tolerant": tolerantly, "timeout": in_time,
    }  # fmt: skip

    async def w() -> None:
        try:
            await ways[kind]()
        finally:
            seen.append(await clean(3))

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert sorted(entry for entry in seen if isinstance(entry, int)) == [1, 2, 3]
    assert seen[-1] == 3


@backends
def test_clean_up_that_wins_decides_nothing(backend: str) -> None:
    """A branch that catches the cancellation and returns closes no other that still cleans up."""

    async def hasty() -> str:
        try:
            await slow(1)
        except RunCancelled:
            return "done"
        return "no"

    async def careful() -> None:
        try:
            await slow(2)
        finally:
            await clean(1)
            seen.append(await clean(2))

    async def w() -> None:
        seen.append(await durable.select(hasty=hasty(), careful=careful()))
        await s(3)

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled(backend, one))
    assert 2 in seen or ("hasty", "done") in seen


@backends
def test_clean_up_under_a_deadline(backend: str) -> None:
    """`durable.timeout` limits clean-up too; the block before it is over."""

    async def w() -> None:
        async with durable.timeout("1h"):
            try:
                await slow(1)
            finally:
                try:
                    async with durable.timeout(10):
                        await slow(2)
                except TimeoutError:
                    seen.append("late")
                    await clean(3)

    one = Run(a_workflow(w))

    async def main() -> None:
        one.bucket = virtual_bucket()
        assert is_cancelled(await one.execute(meanwhile=cancelling(one)))
        first, before = list(seen), outcomes(one)
        seen.clear()
        assert is_cancelled(await one.execute())
        assert outcomes(one) == before
        assert seen == [entry for entry in first if entry == "late"]

    run(backend, main)

    assert "late" in seen
    assert [path for path, outcome in outcomes(one) if path.endswith("clean.1")]


@pytest.mark.parametrize("kind", ["gather", "task-group", "wait", "created"])
def test_natively(kind: str) -> None:
    """So it is with asyncio's own constructs."""

    async def by_gather() -> None:
        await asyncio.gather(slow(1), slow(2))

    async def by_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow(1))
            group.create_task(slow(2))

    async def by_wait() -> None:
        done, _ = await asyncio.wait([asyncio.create_task(slow(x)) for x in (1, 2)])
        for task in done:
            task.result()

    async def by_created() -> None:
        one, two = asyncio.create_task(slow(1)), asyncio.create_task(slow(2))
        try:
            await one
        finally:
            await asyncio.wait([two])
            two.exception()

    ways = {"gather": by_gather, "task-group": by_group, "wait": by_wait, "created": by_created}

    async def w() -> None:
        try:
            await ways[kind]()
        finally:
            seen.append(await clean(3))

    one = Run(a_workflow(w))

    assert is_cancelled(cancelled("asyncio", one))
    assert seen[-1] == 3
    assert dict(outcomes(one)) == {
        "slow.1": "cancelled", "slow.2": "cancelled", "clean.1": "value",
    }  # fmt: skip


# -- clean-up -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def cleaned_up(x: int) -> AsyncIterator[None]:
    try:
        yield
    finally:
        seen.append(await clean(x))


@pytest.mark.parametrize("kind", ["finally", "except", "manager", "stack", "inline", "again"])
@backends
def test_clean_up_runs_and_is_recorded(backend: str, kind: str) -> None:
    """Calls made while the cancellation is handled run, and replay returns what they returned."""

    async def by_finally() -> None:
        try:
            await slow(1)
        finally:
            seen.append(await clean(2))

    async def by_except() -> None:
        try:
            await slow(1)
        except RunCancelled:
            seen.append(await clean(2))
            raise

    async def by_manager() -> None:
        async with cleaned_up(2):
            await slow(1)

    async def by_stack() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(cleaned_up(2))
            await slow(1)

    @durable.workflow(name=f"cleaning {kind} {backend}")
    async def cleaning() -> None:
        seen.append(await clean(2))

    async def by_inline() -> None:
        try:
            await slow(1)
        finally:
            await cleaning()

    async def by_other_error() -> None:
        try:
            try:
                await slow(1)
            finally:
                await bad(1)
        except ValueError:
            seen.append(await clean(2))
            raise RunCancelled from None

    ways = {
        "finally": by_finally, "except": by_except, "manager": by_manager, "stack": by_stack,
        "inline": by_inline, "again": by_other_error,
    }  # fmt: skip

    one = Run(a_workflow(ways[kind]))

    assert is_cancelled(cancelled(backend, one))
    assert seen == ["body 1 left", 2]


@backends
def test_code_that_goes_on_is_cancelled_again(backend: str) -> None:
    """Swallowing the cancellation does not make the next call run."""

    async def w() -> str:
        for x in range(3):
            try:
                await slow(x)
            except RunCancelled:
                seen.append(x)
        return "in vain"

    one = Run(a_workflow(w))

    assert value_of(cancelled(backend, one)) == "in vain"
    assert len([entry for entry in seen if entry in {0, 1, 2}]) == 3
    assert [path for path, _ in outcomes(one)] == ["slow.1", "slow.2", "slow.3"]
    assert {outcome for _, outcome in outcomes(one)} == {"cancelled"}
    assert one.begun == ["slow.1"]


@backends
def test_what_is_handled_around_the_event_loop_is_no_clean_up(backend: str) -> None:
    """A program may start its event loop in an `except RunCancelled`."""

    async def w() -> None:
        await durable.gather(slow(1), bad(2))

    async def slowly() -> None:
        await slow(1)

    one, two = Run(a_workflow(w)), Run(a_workflow(slowly))

    try:
        raise RunCancelled("of another run")
    except RunCancelled:
        live = run(backend, one.execute)
        assert is_cancelled(cancelled(backend, two))

    assert isinstance(live, Finished)
    assert live.failure is not None
    assert live.failure.message == "bad 2"


@backends
def test_code_that_comes_to_an_end_has_it(backend: str) -> None:
    """A function that catches it and returns has completed; another error fails the run."""

    async def returns() -> str:
        try:
            await slow(1)
        except RunCancelled:
            return f"partly {await clean(2)}"
        return "whole"

    async def raises() -> None:
        try:
            await slow(1)
        except RunCancelled:
            raise LookupError("not that") from None

    one, two = Run(a_workflow(returns)), Run(a_workflow(raises))

    assert value_of(cancelled(backend, one)) == "partly 2"
    closing = cancelled(backend, two)
    assert isinstance(closing, Finished)
    assert closing.failure is not None
    assert closing.failure.message == "not that"
    assert not closing.cancelled


@backends
def test_somebody_elses_cancellation_fails_the_run(backend: str) -> None:
    """`RunCancelled` of another run is an error like any other in a run that nobody cancelled."""

    async def w() -> None:
        raise RunCancelled("run 'other' was cancelled")

    one = Run(a_workflow(w))

    closing = run(backend, one.execute)

    assert isinstance(closing, Finished)
    assert closing.failure is not None
    assert not closing.cancelled


# -- across owners --------------------------------------------------------------------------------


@backends
def test_crash_anywhere_in_between(backend: str) -> None:
    """Whatever of the cancellation and the clean-up is recorded, the rest is done once more."""

    async def branch(x: int) -> None:
        try:
            await slow(x)
        finally:
            seen.append(("cleaned", x, await clean(x)))

    async def w() -> None:
        try:
            await durable.gather(branch(1), branch(2))
        finally:
            seen.append(await clean(3))
            seen.append(await clean(4))

    async def main() -> None:
        whole = Run(a_workflow(w))
        assert is_cancelled(await whole.execute(meanwhile=cancelling(whole)))
        paths = list(whole.steps())
        for kept in range(len(paths) + 1):
            one = Run(a_workflow(w))
            assert is_cancelled(await one.execute(meanwhile=cancelling(one)))
            one.forget(*paths[kept:])
            assert is_cancelled(await one.execute())
            assert dict(outcomes(one)) == dict(outcomes(whole)), kept
            assert set(one.begun) <= set(paths[kept:])
            assert not {path for path in one.begun if "slow" in path}

    run(backend, main)


@backends
def test_known_before_the_run_begins(backend: str) -> None:
    """An owner that finds the request in the record cancels the first call that is not recorded."""

    async def w() -> int:
        first = await s(1)
        return int(first + await s(2))

    one = Run(a_workflow(w))

    async def main() -> None:
        await one.execute()
        one.forget("s.2")
        one.put_cancel()
        assert is_cancelled(await one.execute())

    run(backend, main)

    assert one.begun == []
    assert outcomes(one) == [("s.1", "value"), ("s.2", "cancelled")]


@pytest.mark.parametrize("why", ["lease", "drain", "cancelled", "store"])
@backends
def test_closed_meanwhile(backend: str, why: str) -> None:
    """A run that is closed in the middle of its clean-up records nothing of it."""

    async def w() -> None:
        try:
            await slow(1)
        finally:
            await slow(2)

    one = Run(a_workflow(w))

    async def meanwhile(execution: Execution) -> None:
        await cancelling(one)(execution)
        await virtual_seconds(5)
        execution.close(Stopped(why))

    async def main() -> None:
        assert await one.execute(meanwhile=meanwhile) == Stopped(why)

    run(backend, main)

    assert outcomes(one) == [("slow.1", "cancelled")]


@backends
def test_draining_run_is_handed_over_uncancelled(backend: str) -> None:
    """A call that waits because the owner drains gets no outcome from this owner."""

    async def w() -> int:
        await slow(1)
        return int(await s(2))

    one = Run(a_workflow(w))

    async def meanwhile(execution: Execution) -> None:
        await virtual_seconds(5)
        execution.drain()
        execution.cancelling.ask(one.put_cancel())

    async def main() -> None:
        assert await one.execute(meanwhile=meanwhile) == Stopped("drain")
        assert is_cancelled(await one.execute())

    run(backend, main)


# -- threads --------------------------------------------------------------------------------------


def in_threads(backend: str, one: Run, begun: threading.Event) -> Closing | None:
    """Cancel the run once a body of it has begun; then replay it."""

    async def meanwhile(execution: Execution) -> None:
        await anyio.to_thread.run_sync(begun.wait)
        execution.cancelling.ask(one.put_cancel())

    async def main() -> Closing | None:
        live = await one.execute(meanwhile=meanwhile)
        first = outcomes(one)
        replay = await one.execute()
        assert isinstance(live, Finished)
        assert isinstance(replay, Finished)
        assert replay.cancelled == live.cancelled
        assert outcomes(one) == first
        return live

    return run_with_threads(backend, main)


@backends
def test_thread_is_told(backend: str) -> None:
    """A body in a thread sees `current().cancelled`; what it returns then is its outcome."""
    begun = threading.Event()

    @a_step
    def works(x: int) -> str:
        begun.set()
        while not durable.current().cancelled:
            threading.Event().wait(0.001)
        return "half done"

    async def w() -> None:
        seen.append(await works.call(1))
        await s(2)

    one = Run(a_workflow(w))

    assert is_cancelled(in_threads(backend, one, begun))
    assert seen == ["half done"] * 2
    assert outcomes(one) == [("works.1", "value"), ("s.1", "cancelled")]


@backends
def test_thread_that_raises_when_told(backend: str) -> None:
    """Leaving by an error is being cancelled: no further attempt."""
    begun = threading.Event()

    @a_step
    def works(x: int) -> None:
        begun.set()
        while not durable.current().cancelled:
            threading.Event().wait(0.001)
        raise InterruptedError

    async def w() -> None:
        await works.call(1)

    one = Run(a_workflow(w))

    assert is_cancelled(in_threads(backend, one, begun))
    assert outcomes(one) == [("works.1", "cancelled")]


@backends
def test_thread_that_does_not_listen(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a grace it is left behind, and the call is cancelled."""
    monkeypatch.setattr("durable.runtime.cancelling.THREAD_GRACE", 0.05)
    begun, done = threading.Event(), threading.Event()

    @a_step
    def works(x: int) -> None:
        begun.set()
        done.wait(10)

    async def w() -> None:
        await works.call(1)

    one = Run(a_workflow(w))

    assert is_cancelled(in_threads(backend, one, begun))
    done.set()
    assert outcomes(one) == [("works.1", "cancelled")]


@backends
def test_sync_workflow(backend: str) -> None:
    """In a sync workflow it is raised by the blocking call, and clean-up works alike."""
    begun = threading.Event()

    @a_step
    async def waits(x: int) -> None:
        begun.set()
        await anyio.sleep_forever()

    @a_step
    def frees(x: int) -> int:
        return x

    @a_step
    async def tidies(x: int) -> int:
        await anyio.lowlevel.checkpoint()
        return x

    def branch(x: int) -> int:
        return int(frees(x))

    def w() -> None:
        try:
            durable.sync.run(waits(1))
        finally:
            seen.append(frees(2))
            seen.append(durable.sync.run(tidies(3)))
            seen.append(durable.sync.gather(frees.call(4), tidies(5)))
            seen.append(durable.sync.map(branch, [6, 7]))

    one = Run(a_workflow(w))

    assert is_cancelled(in_threads(backend, one, begun))
    assert seen == [2, 3, (4, 5), [6, 7]] * 2
    assert dict(outcomes(one))["waits.1"] == "cancelled"


@backends
def test_sync_workflow_that_goes_on(backend: str) -> None:
    """Its later calls raise the cancellation too."""
    begun = threading.Event()

    @a_step
    def told(x: int) -> None:
        begun.set()
        while not durable.current().cancelled:
            threading.Event().wait(0.001)
        raise InterruptedError

    @a_step
    def never(x: int) -> None:
        seen.append("ran")

    def w() -> None:
        with contextlib.suppress(RunCancelled):
            told(1)
        never(2)

    one = Run(a_workflow(w))

    assert is_cancelled(in_threads(backend, one, begun))
    assert seen == []
    assert outcomes(one) == [("told.1", "cancelled"), ("never.1", "cancelled")]
