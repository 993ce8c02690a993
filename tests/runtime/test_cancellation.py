"""What a cancellation by user code may interrupt, and how it is repeated on replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import durable
from durable.errors import StepFailed
from durable.store.memory import Call, Fault
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import Run, a_step, a_workflow, recorded, value_of
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)


@a_step
async def s(x: int) -> int:
    return x * 10


@a_step
async def forever(x: int) -> int:
    await anyio.sleep_forever()
    raise AssertionError


@a_step(attempts=1)
async def bad(x: int) -> int:
    raise ValueError(f"bad {x}")


def slow_create(*paths: str) -> Callable[[Call], Fault | None]:
    """A store that takes five seconds to record the outcomes of these calls."""

    def fault(call: Call) -> Fault | None:
        slow = call.verb == "create" and call.name.endswith(tuple(f"steps/{p}" for p in paths))
        return Fault("delayed", seconds=5) if slow else None

    return fault


def twice(backend: str, one: Run) -> tuple[Any, Any]:
    """What the workflow returns live, and on replay."""

    async def main() -> tuple[Any, Any]:
        live = value_of(await one.execute())
        one.faults = None
        return live, value_of(await one.execute())

    return run(backend, main)


@backends
def test_cancelled_in_its_body(backend: str) -> None:
    """A call cancelled during its body is recorded as abandoned, and replay cancels it again."""

    async def w() -> list[Any]:
        with anyio.move_on_after(1) as scope:
            await forever(1)
        return [scope.cancelled_caught, await s(2)]

    one = Run(a_workflow(w))

    live, replay = twice(backend, one)

    assert live == replay == [True, 20]
    assert [(s.path, s.outcome, s.n) for s in one.steps().values()] == [
        ("forever.1", "abandoned", 1),
        ("s.1", "value", 2),
    ]
    assert one.begun == []


@pytest.mark.parametrize("kind", ["timeout", "wait_for", "cancel", "task-group"])
def test_cancelled_natively_in_its_body(kind: str) -> None:
    """So it is with each way in which asyncio cancels."""

    async def failing() -> None:
        raise ValueError("sibling")

    async def by_timeout() -> None:
        async with asyncio.timeout(1):
            await forever(1)

    async def by_wait_for() -> None:
        await asyncio.wait_for(forever(1), 1)

    async def by_cancel() -> None:
        task = asyncio.create_task(forever(1))
        await s(1)
        task.cancel()
        await task

    async def by_task_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(forever(1))
            await s(1)
            group.create_task(failing())

    ways = {
        "timeout": by_timeout, "wait_for": by_wait_for, "cancel": by_cancel,
        "task-group": by_task_group,
    }  # fmt: skip

    async def w() -> str:
        try:
            await ways[kind]()
        except (TimeoutError, asyncio.CancelledError, ExceptionGroup) as e:
            return type(e).__name__
        return "not cancelled"

    one = Run(a_workflow(w))

    live, replay = twice("asyncio", one)

    assert live == replay != "not cancelled"
    assert one.steps()["forever.1"].outcome == "abandoned"
    assert one.begun == []


def test_body_that_awaits_something_cancelled() -> None:
    """A body that raises CancelledError of its own accord has failed; nobody cancelled the call."""

    @a_step
    async def clumsy() -> None:
        task = asyncio.create_task(virtual_seconds(10))
        task.cancel()
        await task

    async def w() -> str:
        try:
            await clumsy()
        except StepFailed as e:
            return e.type_name
        return "no error"

    one = Run(a_workflow(w))

    assert set(twice("asyncio", one)) == {"asyncio.exceptions.CancelledError"}
    assert one.steps()["clumsy.1"].outcome == "error"


@backends
def test_cancelled_after_its_body(backend: str) -> None:
    """Once the body has ended the call returns; the cancellation comes at the next call."""

    async def w() -> list[Any]:
        got: list[Any] = []
        with anyio.move_on_after(1) as scope:
            got.append(await s(1))
            got.append("on")
            got.append(await s(2))
        return [*got, scope.cancelled_caught]

    one = Run(a_workflow(w), faults=slow_create("s.1"))

    live, replay = twice(backend, one)

    assert live == replay == [10, "on", True]
    assert [step.outcome for step in one.steps().values()] == ["value", "abandoned"]


def test_cancelled_natively_after_its_body() -> None:
    """Native cancellation pierces anyio's shields, and still the call returns."""

    async def w() -> list[Any]:
        got: list[Any] = []
        try:
            async with asyncio.timeout(1):
                got.append(await s(1))
                got.append("on")
                got.append(await s(2))
        except TimeoutError:
            got.append("timeout")
        return got

    one = Run(a_workflow(w), faults=slow_create("s.1"))

    assert twice("asyncio", one) == ([10, "on", "timeout"], [10, "on", "timeout"])


def test_cancellation_taken_back() -> None:
    """A timeout that ends before the next call takes its cancellation back."""

    async def w() -> list[Any]:
        async with asyncio.timeout(1):
            first = await s(1)
        return [first, await s(2)]

    one = Run(a_workflow(w), faults=slow_create("s.1"))

    assert twice("asyncio", one) == ([10, 20], [10, 20])


def test_cancellation_taken_back_before_a_group() -> None:
    """On older Pythons a failing TaskGroup leaves a cancel request behind; it is not ours."""

    async def w() -> list[Any]:
        async with asyncio.timeout(1):
            first = await s(1)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(bad(1))
        except* ValueError:
            pass
        return [first, await s(2)]

    one = Run(a_workflow(w), faults=slow_create("s.1"))

    assert twice("asyncio", one) == ([10, 20], [10, 20])


def test_cancelled_every_turn() -> None:
    """A write goes on although its task is cancelled again in every turn of the loop."""

    async def w() -> str:
        task = asyncio.create_task(s(1))
        with anyio.move_on_after(1):
            await task
        return "done"

    one = Run(a_workflow(w), faults=slow_create("s.1"))

    assert twice("asyncio", one) == ("done", "done")
    assert one.steps()["s.1"].outcome == "value"


@backends
def test_recorded_value_under_a_cancellation(backend: str) -> None:
    """A recorded outcome is handed over although its scope is cancelled already."""

    async def w() -> Any:
        got = []
        with anyio.CancelScope() as scope:
            scope.cancel()
            got.append(await s(1))
        return got

    one = Run(a_workflow(w))
    one.put_step(recorded("s.1", 1, 10))

    async def main() -> Any:
        return value_of(await one.execute())

    assert run(backend, main) == [10]


@backends
def test_cancelled_before_its_body(backend: str) -> None:
    """A call made in a cancelled scope is abandoned without its body."""

    async def w() -> str:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await s(1)
        return "done"

    one = Run(a_workflow(w))

    assert twice(backend, one) == ("done", "done")
    assert one.steps()["s.1"].outcome == "abandoned"
    assert one.begun == []


@backends
def test_second_await_of_an_abandoned_call(backend: str) -> None:
    """Awaited again, a call that was cancelled raises the cancellation again."""

    async def w() -> list[bool]:
        call = forever(1)
        caught = []
        for _ in range(2):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await call
            caught.append(scope.cancelled_caught)
        return caught

    assert twice(backend, Run(a_workflow(w))) == ([True, True], [True, True])


# -- decisions of the framework ------------------------------------------------------------------


@backends
def test_failing_gather_claims_nothing(backend: str) -> None:
    """The branches that a failing gather closes record nothing, and start no body on replay."""

    async def w() -> str:
        try:
            await durable.gather(forever(1), bad(2), forever(3))
        except ValueError as e:
            return str(e)
        return "no error"

    one = Run(a_workflow(w))

    assert twice(backend, one) == ("bad 2", "bad 2")
    assert list(one.steps()) == ["bad.1"]
    assert one.begun == []


@backends
def test_failing_gather_does_not_wait_for_writes(backend: str) -> None:
    """A branch closed while its outcome is being recorded sees the cancellation at once."""

    @a_step
    async def later(x: int) -> int:
        await virtual_seconds(0.5)
        return x

    @a_step(attempts=1)
    async def fails(x: int) -> int:
        await virtual_seconds(0.1)
        raise ValueError("first")

    async def w() -> list[Any]:
        seen: list[Any] = []

        async def branch() -> None:
            try:
                seen.append(await later(1))
            except anyio.get_cancelled_exc_class():
                seen.append("cancelled")
                raise

        began = anyio.current_time()
        try:
            await durable.gather(branch(), fails(2))
        except ValueError as e:
            seen.append(str(e))
        return [*seen, round(anyio.current_time() - began) < 3]

    one = Run(a_workflow(w), faults=slow_create("fails.1", "later.1"))

    assert twice(backend, one) == (["cancelled", "first", False], ["cancelled", "first", True])
    one = Run(a_workflow(w), faults=slow_create("later.1"))
    assert twice(backend, one) == (["cancelled", "first", True], ["cancelled", "first", True])


@backends
def test_decision_interrupts_shielded_bodies(backend: str) -> None:
    """A shield of the user's does not keep a body going in a branch that a decision closed."""

    async def shielded() -> None:
        with anyio.CancelScope(shield=True):
            await forever(1)

    async def w() -> str:
        try:
            await durable.gather(shielded(), bad(2))
        except ValueError as e:
            return str(e)
        return "no error"

    assert twice(backend, Run(a_workflow(w))) == ("bad 2", "bad 2")


def test_stray_task_in_a_closed_branch() -> None:
    """A task that a closed branch has left behind is cancelled before the gather raises."""

    async def w() -> list[str]:
        log: list[str] = []

        async def stray(call: Any) -> None:
            try:
                await call
            finally:
                log.append("cancelled")

        async def branch() -> None:
            await asyncio.gather(asyncio.shield(stray(forever(1))), forever(2))

        try:
            await durable.gather(branch(), bad(3))
        except ValueError as e:
            log.append(str(e))
        return log

    assert twice("asyncio", Run(a_workflow(w))) == (["cancelled", "bad 3"], ["cancelled", "bad 3"])


# -- the order of cancellations ------------------------------------------------------------------


def racing(body_seconds: dict[int, float]) -> Any:
    """A call that a timeout abandons after five seconds, beside one that takes as long as said.

    The workflow returns what it saw, in order.
    """
    log: list[Any] = []

    @a_step
    async def takes(x: int) -> int:
        await virtual_seconds(body_seconds[x])
        return x

    async def timed() -> None:
        with anyio.move_on_after(5):
            await forever(1)
        log.append("timeout")

    async def other() -> None:
        log.append(await takes(2))

    async def w() -> list[Any]:
        log.clear()
        await durable.gather(timed(), other())
        return list(log)

    return a_workflow(w)


@backends
def test_recorded_outcomes_wait_for_a_cancellation(backend: str) -> None:
    """What was recorded behind an abandoned call waits on replay until its timer has run out."""
    assert twice(backend, Run(racing({2: 10.0}))) == (["timeout", 2], ["timeout", 2])


@backends
def test_new_outcomes_wait_for_a_cancellation(backend: str) -> None:
    """So does what is recorded anew: an earlier owner saw the cancellation first."""
    seconds = {2: 10.0}
    one = Run(racing(seconds))

    async def main() -> list[Any]:
        await one.execute()
        one.forget("gather.1/1/takes.1")
        seconds[2] = 0.0
        again = value_of(await one.execute())
        return [again, value_of(await one.execute())]

    assert run(backend, main) == [["timeout", 2], ["timeout", 2]]
    assert one.steps()["gather.1/1/takes.1"].epoch == 2


@backends
def test_abandoned_call_in_a_closed_branch(backend: str) -> None:
    """A decision ends the wait for a cancellation that will not come again."""

    async def timed() -> None:
        with anyio.move_on_after(3600):
            await forever(1)

    async def w() -> list[Any]:
        try:
            await durable.gather(timed(), bad(2))
        except ValueError as e:
            return [str(e), await s(3)]
        return []

    one = Run(a_workflow(w))

    async def main() -> tuple[Any, float]:
        value_of(await one.execute())
        one.put_step(recorded("gather.1/0/forever.1", 3, outcome="abandoned", digest=""))
        began = anyio.current_time()
        return value_of(await one.execute()), anyio.current_time() - began

    value, seconds = run(backend, main)
    assert value == ["bad 2", 30]
    assert seconds < 1
