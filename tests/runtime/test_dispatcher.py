"""The worker that dispatches a limited queue: what its end must not trip over."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import msgspec
import pytest

from durable.catalog import decode_record
from durable.protocol import names, primitives, records
from durable.protocol.primitives import LEASES, LeaseRecord
from durable.protocol.queues import Queue
from durable.protocol.records import Start
from durable.runtime import lines
from durable.runtime.dispatcher import Dispatcher
from durable.runtime.lines import Lines
from durable.runtime.slots import Listed, Slots
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend
from tests.runtime.clocks import BACKENDS, virtual

ONE = Queue("one", concurrency=1)

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
    await dispatcher.look("a", rung=True)
    looking.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dispatcher.close)
        tasks.start_soon(partial(dispatcher.look, "b", rung=True))

    lease = await store.read(primitives.object_name(LEASES, "queue-a"))
    assert lease is not None
    assert decode_record(LeaseRecord, lease).holder == ""


async def test_the_slot_of_a_run_whose_start_is_on_its_way_stays() -> None:
    """A run may have its slot before its `start`: that is no reason to give the slot away."""
    store = Store(MemoryBackend(Bucket()))
    start = Start(
        workflow="dispatcher-test", input=msgspec.Raw(b"{}"), instance="a1", nonce="n",
        queue="one", limited=True,
    )  # fmt: skip
    slots = Slots(store, ONE.record())
    assert await slots.make("r", start, Listed()) is not None

    await slots.dispatch(tidy=True)

    assert (await slots.all()).held("r", "a1") is not None


async def test_the_slot_of_an_instance_that_was_never_started_goes_to_the_one_that_was() -> None:
    """A starter died with its place in line alone; the id was started again, and waits too."""
    store = Store(MemoryBackend(Bucket()))
    cut_off = Start(
        workflow="dispatcher-test", input=msgspec.Raw(b"{}"), instance="a1", nonce="n",
        queue="one", limited=True,
    )  # fmt: skip
    slots = Slots(store, ONE.record())
    assert await slots.make("r", cut_off, Listed()) is not None
    start = msgspec.structs.replace(cut_off, instance="a2", nonce="m")
    await store.create(names.start("r"), records.encode(start), nonce="m")

    held = await slots.admit("r", start, hint=-1, clean=True)

    assert held is not None
    assert (await slots.all()).held("r", "a1") is None
