"""What a run leaves in the memory of its process once it is over: nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import anyio
import pytest

from durable import step, workflow
from durable.client import Client
from durable.runtime.scopes import executing
from durable.store import Store
from durable.store.memory import MemoryBackend

pytestmark = pytest.mark.anyio

executions: list[weakref.ref[object]] = []


@step(name="freed.double")
async def double(number: int) -> int:
    return 2 * number


@workflow(name="freed.twice")
async def twice() -> int:
    execution = executing.get()
    assert execution is not None
    executions.append(weakref.ref(execution))
    del execution
    return await double(1) + await double(2)


@pytest.fixture
def uncollected() -> Iterator[None]:
    executions.clear()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
async def test_a_run_that_is_over_is_freed_without_a_garbage_collection() -> None:
    """A collection makes all runs of a process stand still, and looks at all that it holds."""
    async with Client(Store(MemoryBackend())) as client:
        assert await client.run(twice) == 6
        await anyio.wait_all_tasks_blocked()

        assert [execution() for execution in executions] == [None]
