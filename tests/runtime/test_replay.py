"""Recorded outcomes are handed over in the recorded order, by whatever construct awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import durable
from durable.protocol.records import Epoch, Seen, Step
from durable.store.memory import Call, Fault
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import Run, a_step, a_workflow, recorded, value_of
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)

NAMES = ["s.1", "s.2", "s.3"]


@a_step
async def s(x: int) -> int:
    await virtual_seconds(x)
    return x


@a_step(attempts=1)
async def bad(x: int) -> int:
    raise ValueError(f"bad {x}")


async def noted(log: list[Any], call: Awaitable[Any]) -> Any:
    log.append(await call)
    return log[-1]


async def by_task_group(log: list[Any]) -> None:
    async with anyio.create_task_group() as group:
        for i in (1, 2, 3):
            group.start_soon(noted, log, s(i))


async def by_durable_gather(log: list[Any]) -> None:
    await durable.gather(*[noted(log, s(i)) for i in (1, 2, 3)])


async def by_asyncio_gather(log: list[Any]) -> None:
    await asyncio.gather(*[noted(log, s(i)) for i in (1, 2, 3)])


async def by_as_completed(log: list[Any]) -> None:
    log.extend([await call for call in asyncio.as_completed([s(i) for i in (1, 2, 3)])])


async def by_first_completed(log: list[Any]) -> None:
    waiting = {asyncio.ensure_future(s(i)) for i in (1, 2, 3)}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        log.extend(task.result() for task in done)
        assert len(done) == 1


async def by_tasks_in_tasks(log: list[Any]) -> None:
    async def deep(call: Any, depth: int) -> Any:
        return await (asyncio.create_task(deep(call, depth - 1)) if depth else call)

    await asyncio.gather(*[noted(log, deep(s(i), 3 * (3 - i))) for i in (1, 2, 3)])


EVERYWHERE = [by_task_group, by_durable_gather]
ON_ASYNCIO = [by_asyncio_gather, by_as_completed, by_first_completed, by_tasks_in_tasks]
CONSTRUCTS = [
    *[pytest.param("asyncio", c, id=f"asyncio-{c.__name__}") for c in EVERYWHERE + ON_ASYNCIO],
    *[
        pytest.param("trio", c, id=f"trio-{c.__name__}", marks=pytest.mark.requires("trio"))
        for c in EVERYWHERE
    ],
]  # fmt: skip

Construct = Callable[[list[Any]], Awaitable[None]]


def logging_run(construct: Construct) -> Run:
    async def w() -> list[Any]:
        log: list[Any] = []
        await construct(log)
        return log

    return Run(a_workflow(w))


def value(backend: str, one: Run) -> Any:
    async def main() -> Any:
        return value_of(await one.execute())

    return run(backend, main)


@pytest.mark.parametrize(("backend", "construct"), CONSTRUCTS)
@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1), (3, 2, 1)])
def test_recorded_order(backend: str, construct: Construct, order: tuple[int, ...]) -> None:
    """Whatever order was recorded is the order that the workflow sees."""
    one = logging_run(construct)
    for n, i in enumerate(order, 1):
        one.put_step(recorded(f"s.{i}", n, i))

    assert value(backend, one) == list(order)
    assert one.begun == []


@pytest.mark.parametrize(("backend", "construct"), CONSTRUCTS)
def test_live_order(backend: str, construct: Construct) -> None:
    """Live, outcomes are seen in the order in which their bodies ended, and replayed so."""
    one = logging_run(construct)

    assert value(backend, one) == [1, 2, 3]
    assert value(backend, one) == [1, 2, 3]


@pytest.mark.parametrize(("backend", "construct"), CONSTRUCTS)
def test_recorded_before_new(backend: str, construct: Construct) -> None:
    """While recorded outcomes remain no other body starts; the new ones come behind."""
    one = logging_run(construct)
    one.put_step(recorded("s.3", 1, 3))

    assert value(backend, one) == [3, 1, 2]
    assert one.progress[0] == "replay s.3"
    assert sorted(one.begun) == ["s.1", "s.2"]


@backends
def test_number_waits_for_lower_numbers(backend: str) -> None:
    """An outcome waits until the records issued before it are acknowledged."""

    def first_is_slow(call: Call) -> Fault | None:
        slow = call.verb == "create" and call.name.endswith("steps/s.1")
        return Fault("delayed", seconds=50) if slow else None

    one = logging_run(by_task_group)
    one.faults = first_is_slow

    assert value(backend, one) == [1, 2, 3]
    assert [(path, step.n) for path, step in one.steps().items()] == [
        ("s.1", 1), ("s.2", 2), ("s.3", 3),
    ]  # fmt: skip


@backends
def test_late_record_of_a_dead_owner(backend: str) -> None:
    """It comes behind what the owners recorded who had not seen it."""
    one = logging_run(by_task_group)
    one.put_step(recorded("s.1", 2, 1))
    one.put_step(recorded("s.2", 1, 2))  # landed after the list of epoch 2
    one.put_step(recorded("s.3", 1, 3, epoch=2))
    one.put_epoch(Epoch(2, "w", "", "takeover", "e2", 0.0, seen={"1": Seen(2, [1])}))

    assert value(backend, one) == [1, 3, 2]
    assert value(backend, one) == [1, 3, 2]


@backends
def test_first_failure_is_repeated(backend: str) -> None:
    """Which branch failed first is what the record says, not the order of the branches."""

    async def w() -> str:
        try:
            await durable.gather(bad(1), bad(2), bad(3))
        except ValueError as e:
            return str(e)
        return "no error"

    one = Run(a_workflow(w))
    assert value(backend, one) in {"bad 1", "bad 2", "bad 3"}
    steps = list(one.steps().values())
    one.forget(*[step.path for step in steps])

    for n, step in enumerate(reversed(steps), 1):
        step.n, step.nonce = n, f"again {n}"
        one.put_step(step)

    assert value(backend, one) == said(steps[-1])


def said(step: Step) -> str:
    assert step.failure is not None
    return step.failure.message


@backends
def test_code_that_is_slow_between_two_calls(backend: str) -> None:
    """A recorded outcome is not passed over while the code that awaits it is on its way."""

    async def wanders(log: list[Any]) -> None:
        await noted(log, s(1))
        for _ in range(40):
            await anyio.lowlevel.checkpoint()
        await noted(log, s(2))

    async def construct(log: list[Any]) -> None:
        await durable.gather(wanders(log), noted(log, s(3)))

    one = logging_run(construct)
    one.put_step(recorded("gather.1/0/s.1", 1, 1))
    one.put_step(recorded("gather.1/0/s.2", 2, 2))
    one.put_step(recorded("s.1", 3, 3))

    assert value(backend, one) == [1, 2, 3]


@backends
def test_record_that_the_code_no_longer_asks_for(backend: str) -> None:
    """Records of calls that are gone from the code hold nothing up."""
    one = logging_run(by_task_group)
    one.put_step(recorded("gone.1", 1, 0))
    one.put_step(recorded("s.2", 2, 2))
    one.put_step(recorded("gone.2", 3, 0))
    one.put_step(recorded("s.1", 4, 1))

    assert value(backend, one) == [2, 1, 3]


@backends
def test_tasks_begin_before_the_next_outcome(backend: str) -> None:
    """Tasks made before a sequential call have begun when its outcome comes, live and on replay."""
    log: list[Any] = []

    async def begins(call: Awaitable[Any]) -> None:
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        log.append("began")
        await call

    async def w() -> list[Any]:
        log.clear()
        async with anyio.create_task_group() as group:
            group.start_soon(begins, s(1))
            log.append(await s(0))
        return list(log)

    one = Run(a_workflow(w))

    assert value(backend, one) == ["began", 0]
    assert value(backend, one) == ["began", 0]


@backends
def test_map_starts_in_order(backend: str) -> None:
    """`map(limit=)` starts items in index order and frees a place when an outcome is known."""
    running: list[int] = []
    most: list[int] = []

    @a_step
    async def item(x: int) -> int:
        running.append(x)
        most.append(len(running))
        await virtual_seconds(10 - x)
        running.remove(x)
        return x

    async def w() -> list[int]:
        return list(await durable.map(item, range(6), limit=2))

    one = Run(a_workflow(w))

    assert value(backend, one) == [0, 1, 2, 3, 4, 5]
    assert max(most) == 2
    assert {one.begun.index(f"map.1/{i}/item.1") // 2 for i in (0, 1)} == {0}  # trio shuffles
    assert one.begun[2:] == [f"map.1/{i}/item.1" for i in range(2, 6)]
    assert value(backend, one) == [0, 1, 2, 3, 4, 5]


@backends
def test_large_records(backend: str) -> None:
    """Records too large for a list are read, and replay all the same."""

    @a_step
    async def large(x: int) -> str:
        return str(x) * 10_000

    async def w() -> list[int]:
        return [len(await large(i)) for i in range(3)]

    one = Run(a_workflow(w))

    assert value(backend, one) == [10_000] * 3
    assert value(backend, one) == [10_000] * 3
    assert one.begun == []
