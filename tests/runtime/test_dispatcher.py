"""The worker that dispatches a limited queue: what its end must not trip over."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from durable.catalog import decode_record
from durable.protocol import primitives
from durable.protocol.primitives import LEASES, LeaseRecord
from durable.protocol.queues import Queue
from durable.runtime import lines
from durable.runtime.dispatcher import Dispatcher
from durable.runtime.lines import Lines
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend
from tests.runtime.clocks import BACKENDS, virtual

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


async def test_a_look_may_be_under_way_when_the_dispatcher_ends() -> None:
    """A lease that comes while the others are given up does not end the worker with an error."""
    looking = anyio.Event()

    def faults(call: Call) -> Fault | None:
        if looking.is_set() and call.name == primitives.object_name(LEASES, "queue-a"):
            return Fault("delayed", seconds=1.0)
        return None

    store = Store(MemoryBackend(Bucket(), faults=faults))
    for name in ("a", "b"):
        await lines.declare(store, Queue(name, concurrency=1))
    known = Lines(store, ("a", "b"), {})
    await known.learn()
    dispatcher = Dispatcher(store, known, label="w")
    await dispatcher.look("a")
    looking.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dispatcher.close)
        tasks.start_soon(dispatcher.look, "b")

    lease = await store.read(primitives.object_name(LEASES, "queue-a"))
    assert lease is not None
    assert decode_record(LeaseRecord, lease).holder == ""
