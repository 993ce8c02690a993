"""`client.run`: execute here what nobody else executes, from wherever the record ends."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from durable.client import Client
from durable.decorators import workflows
from durable.errors import Conflict, NeedsAttention, RunFailed, StoreRefused, UsageError
from durable.protocol import names
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend
from tests.client import shop
from tests.client.shop import checkout, nightly, other, refused

pytestmark = pytest.mark.anyio


async def test_it_returns_what_the_workflow_returns(client: Client) -> None:
    """The value comes back as annotated."""
    assert await client.run(checkout, "A-1") == ("receipt A-1", 3)
    assert await client.run(nightly, "2026-11-29") == 10


async def test_a_fresh_run_costs_its_writes_and_no_read(bucket: Bucket, client: Client) -> None:
    """Marker and `start`, one write for each of two steps, result and history; no list, no read."""
    await client.run(other, "warm up")  # the lease of the client's worker is there from now on
    before, logged = bucket.calls.copy(), len(bucket.log)

    await client.run(checkout.options(id="x"), "A-1")

    by_run = [(verb, name) for verb, name in bucket.log[logged:] if "x" in name.split("/", 1)[1]]
    by_run = [(verb, name) for verb, name in by_run if verb != "delete"]
    assert [verb for verb, _ in by_run] == ["create"] * 6
    assert bucket.calls["list"] == before["list"]


async def test_an_id_that_is_over_gives_its_outcome(client: Client) -> None:
    """Asked again, no body runs."""
    first = await client.run(checkout.options(id="x"), "A-1")
    shop.ran.clear()

    assert await client.run(checkout.options(id="x"), "A-1") == first
    assert shop.ran == []


async def test_a_failed_run_raises_with_its_cause(client: Client) -> None:
    """RunFailed; its cause is the rebuilt error, its note where it was raised."""
    with pytest.raises(RunFailed, match="no A-1 here") as caught:
        await client.run(refused.options(id="x"), "A-1")

    assert type(caught.value.__cause__) is PermissionError
    assert caught.value.run == "x"
    assert "shop.py" in caught.value.__notes__[0]


async def test_a_failed_run_stays_failed(client: Client) -> None:
    """Asked again it fails the same way without running."""
    for _ in range(2):
        with pytest.raises(RunFailed, match="no A-1 here"):
            await client.run(refused.options(id="x"), "A-1")

    assert shop.ran == ["charge A-1", "refuse A-1"]


async def test_errors_are_not_wrapped_in_groups(store: Store) -> None:
    """What a run raises leaves `async with` as it is."""
    with pytest.raises(RunFailed):
        async with Client(store) as client:
            await client.run(refused, "A-1")


async def test_cancelled_it_goes_on_where_it_was(store: Store) -> None:
    """A cancelled run keeps what is recorded; run again, it continues at the next step."""
    gate = shop.gate("A-1")
    async with Client(store) as client:
        with anyio.CancelScope() as scope:

            async def cancel_in_delivery() -> None:
                await gate.reached.wait()
                scope.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_in_delivery)
                await client.run(checkout.options(id="x"), "A-1")
        handle = await client.get("x")
        assert scope.cancelled_caught
        assert await handle.status() == "waiting"
        gate.open.set()
        value = await client.run(checkout.options(id="x"), "A-1")
        steps = await handle.steps()

    assert value == ("receipt A-1", 3)
    assert shop.ran == ["charge A-1", "deliver A-1", "deliver A-1"]
    assert [(s.path, s.epoch) for s in steps] == [("charge.1", 1), ("deliver.1", 2)]


async def test_it_continues_what_another_started(client: Client) -> None:
    """A run that waits for a worker is taken and executed here."""
    await client.start(checkout.options(id="x"), "A-1")

    assert await client.run(checkout.options(id="x"), "A-1") == ("receipt A-1", 3)


async def test_it_waits_for_a_live_worker(store: Store) -> None:
    """A run that somebody alive holds is not executed twice."""
    gate = shop.gate("A-1")
    async with Client(store) as one, Client(store) as two, anyio.create_task_group() as tasks:
        values = []

        async def run(client: Client) -> None:
            values.append(await client.run(checkout.options(id="x"), "A-1"))

        tasks.start_soon(run, one)
        await gate.reached.wait()
        tasks.start_soon(run, two)
        await anyio.wait_all_tasks_blocked()
        gate.open.set()

    assert values == [("receipt A-1", 3)] * 2
    assert shop.ran == ["charge A-1", "deliver A-1"]


async def test_many_at_once_share_one_worker(bucket: Bucket, client: Client) -> None:
    """Runs of one client stand under one lease."""
    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(client.run, checkout, f"A-{number}")

    leases = [name for verb, name in bucket.log if verb == "create" and name[:8] == "workers/"]
    assert len(leases) == 1
    assert len(shop.ran) == 60


async def test_a_conflict_executes_nothing(bucket: Bucket, client: Client) -> None:
    """The id of another workflow's run is refused, and that run is left as it is."""
    await client.start(checkout.options(id="x"), "A-1")
    # Nobody is to look at it, so that asking for it makes it this client's for a moment.
    marker = bucket.read(names.marker("default", "x"))
    assert marker is not None
    bucket.delete(marker.name, marker.generation)

    with pytest.raises(Conflict):
        await client.run(other.options(id="x"), "A-1")
    await anyio.wait_all_tasks_blocked()

    assert shop.ran == []


async def test_a_damaged_run_needs_attention_and_the_next_does_not(
    bucket: Bucket, client: Client
) -> None:
    """A foreign object in one run's folder stops that run alone."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    bucket.create(f"runs/x/{handle.instance}/steps/charge.1", b"\x00garbage", {}, True)

    with pytest.raises(NeedsAttention, match=r"steps/charge\.1"):
        await client.run(checkout.options(id="x"), "A-1")

    assert await client.run(checkout.options(id="y"), "A-1") == ("receipt A-1", 3)
    assert await handle.status() == "needs-attention"


async def test_a_store_that_refuses_half_way_is_an_error(bucket: Bucket) -> None:
    """A full disk: a clear error, and only what was recorded before counts."""

    def full(call: Call) -> Fault | None:
        return Fault("refused") if "steps/deliver" in call.name else None

    async with Client(Store(MemoryBackend(bucket, faults=full))) as client:
        with pytest.raises(StoreRefused):
            await client.run(checkout.options(id="x"), "A-1")
    async with Client(Store(MemoryBackend(bucket))) as client:
        steps = await (await client.get("x")).steps()
        value = await client.run(checkout.options(id="x"), "A-1")

    assert [s.path for s in steps] == ["charge.1"]
    assert value == ("receipt A-1", 3)


async def test_a_closed_client_runs_nothing(store: Store) -> None:
    """`run` needs an open client and says how to get one."""
    with pytest.raises(UsageError, match="async with"):
        await Client(store).run(checkout, "A-1")


async def test_a_clients_worker_helps_nobody_else(client: Client) -> None:
    """It takes no run from a queue, so that it cannot be mistaken for a worker."""
    await client.run(other, "warm up")
    await client.start(checkout.options(id="x"), "A-1")
    status = await (await client.get("x")).status()

    assert (status, status.reason) == ("waiting", "no live worker")


async def test_a_worker_takes_what_a_client_started(store: Store) -> None:
    """The whole way: start here, executed by a worker, the outcome known here."""
    async with Client(store) as client, anyio.create_task_group() as tasks:
        worker = Worker(store, workflows())
        await tasks.start(worker.run)
        handle = await client.start(checkout.options(id="x"), "A-1")
        value = await handle.result(timeout=20)
        worker.stop()

    assert value == ("receipt A-1", 3)


async def test_a_client_closed_too_early_says_so(store: Store) -> None:
    """A `run` that is still under way when its client closes ends with an error."""
    gate = shop.gate("A-1")
    errors: list[UsageError] = []

    async def run(client: Client) -> None:
        try:
            await client.run(checkout.options(id="x"), "A-1")
        except UsageError as e:
            errors.append(e)

    hasty = Options(queues=(), grace=0)
    async with anyio.create_task_group() as tasks, Client(store, options=hasty) as client:
        tasks.start_soon(run, client)
        await gate.reached.wait()

    assert [e.run for e in errors] == ["x"]


async def test_an_id_in_another_queue_is_executed_once(store: Store) -> None:
    """Asked for under another queue, a run that somebody holds in its own is waited for."""
    gate = shop.gate("A-1")
    values = []

    async def run(client: Client, queue: str) -> None:
        values.append(await client.run(checkout.options(id="x", queue=queue), "A-1"))

    async with Client(store) as one, Client(store) as two, anyio.create_task_group() as tasks:
        tasks.start_soon(run, one, "mail")
        await gate.reached.wait()
        tasks.start_soon(run, two, "default")
        await anyio.wait_all_tasks_blocked()
        gate.open.set()

    assert values == [("receipt A-1", 3)] * 2
    assert shop.ran == ["charge A-1", "deliver A-1"]


@pytest.mark.parametrize("turns", range(8))
async def test_a_run_cancelled_while_it_begins_lets_go(client: Client, turns: int) -> None:
    """A cancellation that comes while the client's worker is being started ends the call."""

    async def run() -> None:
        await client.run(other, "A-1")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    assert await client.run(other.options(id="next"), "A-1")
