"""Where a durable call may be made, and which path it gets (P5)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import pytest

import durable
from durable.errors import NotInWorkflow, UnfinishedCalls, UsageError
from tests.runtime.clocks import BACKENDS, run, run_with_threads
from tests.runtime.runs import Run, a_step, a_workflow, error_of, value_of


@a_step
async def s(x: int) -> int:
    return x * 10


@a_step
def slow(x: int) -> int:
    return x + 1


@a_step
async def outer(x: int) -> int:
    return await s(x) + await slow.call(x)


backends = pytest.mark.parametrize("backend", BACKENDS)


def executed(backend: str, fn: Any, *args: Any) -> Run:
    """A run of the function that came to its end."""
    one = Run(a_workflow(fn), args)

    async def main() -> None:
        one.closing = await one.execute()  # type: ignore[attr-defined]  # the test keeps it there

    run(backend, main)
    return one


def value(one: Run) -> Any:
    return value_of(one.execution.closing if one.execution else None)


def error(one: Run) -> BaseException:
    return error_of(one.execution.closing if one.execution else None)


@backends
def test_loop_of_50_and_gather_of_50(backend: str) -> None:
    """Fifty calls in a loop and fifty side by side have a hundred and more distinct paths."""

    async def w() -> list[int]:
        first = [await s(i) for i in range(50)]
        second = await durable.gather(*[s(i) for i in range(50)])
        third = await durable.map(s, range(50))
        return [*first, *second, *third]

    one = executed(backend, w)

    assert value(one) == [i * 10 for i in range(50)] * 3
    assert {f"s.{i}" for i in range(1, 101)} <= set(one.steps())
    assert {f"map.1/{i}/s.1" for i in range(50)} <= set(one.steps())
    assert len(one.steps()) == 150


def test_asyncio_gather_of_calls() -> None:
    """`asyncio.gather`, tasks and task groups over calls made by the workflow's task are right."""

    async def w() -> list[int]:
        got = await asyncio.gather(s(1), s(2))
        task = asyncio.create_task(s(3))
        async with asyncio.TaskGroup() as group:
            other = group.create_task(s(4))
        return [*got, await task, other.result()]

    one = executed("asyncio", w)

    assert value(one) == [10, 20, 30, 40]
    assert sorted(one.steps()) == ["s.1", "s.2", "s.3", "s.4"]


def test_asyncio_gather_of_helpers() -> None:
    """Steps inside a helper that runs as a task of its own raise, and name durable.gather."""

    async def helper(x: int) -> int:
        return await s(x)

    async def w() -> list[int]:
        return list(await asyncio.gather(helper(1), helper(2)))

    raised = error(executed("asyncio", w))

    assert isinstance(raised, NotInWorkflow)
    assert "durable.gather" in str(raised)


@backends
def test_durable_gather_of_helpers(backend: str) -> None:
    """`durable.gather` gives each helper a scope, so that its calls are right."""

    async def helper(x: int) -> int:
        return await s(x) + await s(x + 1)

    async def w() -> list[int]:
        return list(await durable.gather(helper(1), helper(5)))

    one = executed(backend, w)

    assert value(one) == [30, 110]
    assert sorted(one.steps()) == [
        "gather.1/0/s.1", "gather.1/0/s.2", "gather.1/1/s.1", "gather.1/1/s.2",
    ]  # fmt: skip


@backends
def test_start_soon(backend: str) -> None:
    """`task_group.start_soon(step, arg)` calls the step in the workflow's own task."""

    async def w() -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(s, 1)
            group.start_soon(s, 2)
        return "done"

    one = executed(backend, w)

    assert value(one) == "done"
    assert sorted(one.steps()) == ["s.1", "s.2"]


@pytest.mark.requires("trio")
def test_nursery() -> None:
    """So does a trio nursery's `start_soon(step, arg)`."""
    import trio

    async def w() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(s, 1)
            nursery.start_soon(s, 2)
        return "done"

    assert sorted(executed("trio", w).steps()) == ["s.1", "s.2"]


@backends
def test_call_in_a_users_thread(backend: str) -> None:
    """A durable call in a thread that user code started raises."""

    async def w() -> str:
        with pytest.raises(NotInWorkflow):
            await anyio.to_thread.run_sync(slow, 1)
        return "refused"

    one = Run(a_workflow(w))
    closing = run_with_threads(backend, one.execute)

    assert value_of(closing) == "refused"
    assert one.steps() == {}


@backends
def test_sync_step_called_bare(backend: str) -> None:
    """A sync step called bare in an async workflow raises and says what to write."""

    async def w() -> int:
        return slow(1)  # type: ignore[no-any-return]  # what a call returns depends on where it is made

    raised = error(executed(backend, w))

    assert isinstance(raised, NotInWorkflow)
    assert "slow.call(...)" in str(raised)


@backends
def test_step_in_a_step(backend: str) -> None:
    """A step called in a step's body is a plain call: one record, the outer one's."""

    async def w() -> int:
        return await outer(1)  # type: ignore[no-any-return]  # what a call returns depends on where it is made

    one = Run(a_workflow(w))

    assert value_of(run_with_threads(backend, one.execute)) == 12
    assert list(one.steps()) == ["outer.1"]


@backends
def test_never_awaited(backend: str) -> None:
    """A call that was never awaited is an error when its scope returns."""

    async def w() -> str:
        s(1)
        return "done"

    raised = error(executed(backend, w))

    assert isinstance(raised, UnfinishedCalls)
    assert "s.1" in str(raised)


def test_unfinished_at_return() -> None:
    """A call still under way in a task when the workflow returns is an error too."""

    async def w() -> str:
        asyncio.create_task(forever(1))  # noqa: RUF006  # nobody keeps it, on purpose
        await s(1)
        return "done"

    @a_step
    async def forever(x: int) -> None:
        await anyio.sleep_forever()

    one = executed("asyncio", w)

    assert "forever.1" in str(error(one))
    assert list(one.steps()) == ["s.1"]


@backends
def test_unfinished_in_a_branch(backend: str) -> None:
    """A branch that returns before its calls are awaited fails its gather."""

    async def helper() -> None:
        s(1)

    async def w() -> None:
        await durable.gather(helper())

    raised = error(executed(backend, w))

    assert isinstance(raised, UnfinishedCalls)
    assert "gather.1/0/s.1" in str(raised)


@backends
def test_awaited_twice(backend: str) -> None:
    """A call awaited twice gives one value, and its body runs once."""

    async def w() -> list[int]:
        call = s(1)
        return [await call, await call]

    one = executed(backend, w)

    assert value(one) == [10, 10]
    assert one.begun == ["s.1"]


def test_awaited_by_two_tasks() -> None:
    """Two tasks that await one call both get its value."""

    async def both(call: Any) -> int:
        return int(await call)

    async def w() -> list[int]:
        call = s(1)
        return list(await asyncio.gather(both(call), both(call)))

    one = executed("asyncio", w)

    assert value(one) == [10, 10]
    assert one.begun == ["s.1"]


@backends
def test_keys(backend: str) -> None:
    """A key stands in the path instead of the ordinal, and takes no ordinal away."""

    async def w() -> list[int]:
        return [await s(1), await s.options(key="A/1")(2), await s(3)]

    assert list(executed(backend, w).steps()) == ["s.1", "s=A%2F1", "s.2"]


@backends
def test_key_used_twice(backend: str) -> None:
    """One key twice in a scope is an error; in two scopes it is not."""

    async def keyed() -> int:
        return int(await s.options(key="k")(1))

    async def fine() -> None:
        await durable.gather(keyed(), keyed())

    async def w() -> None:
        await keyed()
        await keyed()

    assert sorted(executed(backend, fine).steps()) == ["gather.1/0/s=k", "gather.1/1/s=k"]
    raised = error(executed(backend, w))
    assert isinstance(raised, UsageError)
    assert "'k'" in str(raised)


@backends
def test_inline_workflow(backend: str) -> None:
    """A workflow called in a workflow runs inline, in a scope of its own."""

    async def inner(x: int) -> int:
        return int(await s(x))

    inline = a_workflow(inner)

    async def w() -> list[int]:
        return [await inline(1), await inline(2)]

    one = executed(backend, w)

    assert value(one) == [10, 20]
    assert [path.rsplit("/")[-1] for path in one.steps()] == ["s.1", "s.1"]
    assert len({path.split("/")[0] for path in one.steps()}) == 2


@backends
def test_sync_workflow(backend: str) -> None:
    """In a sync workflow steps are simply called, and block."""
    threads: list[int] = []

    def w() -> int:
        threads.append(threading.get_ident())
        return slow(1) + slow(slow(1))  # type: ignore[no-any-return]  # what a call returns depends on where it is made

    one = Run(a_workflow(w))

    assert value_of(run_with_threads(backend, one.execute)) == 5
    assert list(one.steps()) == ["slow.1", "slow.2", "slow.3"]
    assert value_of(run_with_threads(backend, one.execute)) == 5
    assert one.begun == []
    assert threading.get_ident() not in threads


def test_cancelled_before_it_begins() -> None:
    """A call whose task was cancelled before its first turn is finished, and recorded nowhere."""

    async def w() -> str:
        task = asyncio.create_task(s(1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return "done"

    one = executed("asyncio", w)

    assert value(one) == "done"
    assert one.steps() == {}


@backends
def test_group_cut_short_by_a_timeout(backend: str) -> None:
    """A gather that a timeout of the user's ended is finished: the workflow may return."""

    @a_step
    async def forever(x: int) -> None:
        await anyio.sleep_forever()

    async def w() -> str:
        with anyio.move_on_after(1):
            await durable.gather(forever(1), forever(2))
        return "done"

    assert value(executed(backend, w)) == "done"
