"""A handle: the outcome, the status and the recorded calls of one instance of a run."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import anyio
import pytest

from durable import RunCancelled, RunFailed
from durable.client import Client, Handle
from durable.decorators import workflows
from durable.errors import NeedsAttention, NotFound, UsageError
from durable.protocol import names, records
from durable.protocol.failures import Failure
from durable.protocol.records import Attempt, Attention, Result
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.memory import Bucket, Call, MemoryBackend
from tests.client import shop
from tests.client.shop import checkout, refused

pytestmark = pytest.mark.anyio


def put(bucket: Bucket, name: str, body: bytes) -> None:
    assert bucket.create(name, body, {"nonce": "test"}, True) is not None


def delete(bucket: Bucket, name: str) -> None:
    there = bucket.read(name)
    assert there is not None
    assert bucket.delete(name, there.generation)


# -- result ---------------------------------------------------------------------------------------


async def test_result_waits_for_the_outcome(client: Client) -> None:
    """It returns as soon as somebody has finished the run."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    values = []

    async def wait() -> None:
        values.append(await handle.result(timeout=20))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await client.run(checkout.options(id="x"), "A-1")

    assert values == [("receipt A-1", 3)]


async def test_waiting_costs_reads_alone(bucket: Bucket, client: Client) -> None:
    """Looking for an outcome that is not there writes and lists nothing."""
    handle = await client.start(checkout, "A-1")
    bucket.calls.clear()

    with pytest.raises(TimeoutError, match="not over"):
        await handle.result(timeout=0.01)

    assert set(bucket.calls) == {"read"}


@pytest.mark.parametrize("timeout", [-1, math.nan, "soon", True])
async def test_a_timeout_that_is_none_is_refused(
    bucket: Bucket, client: Client, timeout: Any
) -> None:
    """Before anything is asked for; lengths of time may be text, as everywhere."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    before = len(bucket.log)

    with pytest.raises(UsageError, match="duration"):
        await handle.result(timeout=timeout)
    with pytest.raises(UsageError, match="duration"):
        await handle.cancel(wait=True, timeout=timeout)
    assert len(bucket.log) == before
    with pytest.raises(TimeoutError):
        await handle.result(timeout="0s")


@pytest.mark.parametrize("reason", [5, None, "\udc80", "x" * 5000])
async def test_a_reason_that_no_record_can_keep_is_refused(
    bucket: Bucket, client: Client, reason: Any
) -> None:
    """Before it is written: nobody could read it, and the run would need attention."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    before = len(bucket.log)

    with pytest.raises(UsageError, match="reason"):
        await handle.cancel(reason=reason)
    if reason is not None:  # that is the label by default
        for word in (partial(client.claim, "key", 1), partial(client.lease, "key")):
            with pytest.raises(UsageError, match="label"):
                await word(label=reason)
        with pytest.raises(UsageError, match="label"):
            client.doc("key", label=reason)
    assert len(bucket.log) == before


async def test_a_failed_run_raises_the_rebuilt_error(client: Client) -> None:
    """RunFailed with the original class as its cause."""
    with pytest.raises(RunFailed):
        await client.run(refused.options(id="x"), "A-1")

    with pytest.raises(RunFailed, match=r"builtins\.PermissionError: no A-1 here") as caught:
        await (await client.get("x")).result()

    assert type(caught.value.__cause__) is PermissionError


async def test_a_cancelled_run_raises_run_cancelled(bucket: Bucket, client: Client) -> None:
    """RunCancelled, which `except Exception` lets pass."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    outcome = Result(status="cancelled", nonce="n", epoch=1, time=1.0)
    put(bucket, names.result("x", handle.instance), records.encode(outcome))

    with pytest.raises(RunCancelled, match="'x'"):
        await handle.result()

    assert await handle.status() == "cancelled"


async def test_a_result_under_another_annotation_is_said_to_be(
    bucket: Bucket, client: Client
) -> None:
    """A recorded value that the code's annotation no longer fits is a usage error."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    body = b'{"status":"completed","nonce":"n","epoch":1,"time":1.0,"value":"text"}'
    put(bucket, names.result("x", handle.instance), body)

    with pytest.raises(UsageError, match="annotation"):
        await handle.result()


async def test_attention_ends_the_wait(bucket: Bucket, client: Client) -> None:
    """NeedsAttention with reason and remedy, as long as nobody works on the run."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    flag(bucket, handle)
    with pytest.raises(TimeoutError):  # it has a marker: somebody will try
        await handle.result(timeout=0)
    delete(bucket, names.marker("default", "x"))

    with pytest.raises(NeedsAttention, match="the code has changed") as caught:
        await handle.result()

    assert (caught.value.reason, caught.value.hint) == ("drift", "bring it back")


def flag(bucket: Bucket, handle: Handle[object]) -> None:
    hint = Attention(
        run=handle.id, instance=handle.instance, workflow=handle.workflow, reason="drift",
        message="the code has changed", hint="bring it back", nonce="n", time=1.0,
    )  # fmt: skip
    put(bucket, names.attention(handle.queue, handle.id), records.encode(hint))


async def test_a_handle_pins_its_instance(bucket: Bucket, client: Client) -> None:
    """An outcome of another instance under the same id is not this handle's."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    outcome = Result(status="completed", nonce="n", epoch=1, time=1.0)
    put(bucket, names.result("x", "abcdef"), records.encode(outcome))

    with pytest.raises(TimeoutError):
        await handle.result(timeout=0)


async def test_an_unknown_id_is_not_found(client: Client) -> None:
    """The error names the run."""
    with pytest.raises(NotFound, match="'nobody'") as caught:
        await client.get("nobody")

    assert caught.value.run == "nobody"


async def test_a_damaged_start_needs_attention(bucket: Bucket, client: Client) -> None:
    """Whatever stands where `start` should, the error names the object."""
    put(bucket, "runs/x/start", b"not json")

    with pytest.raises(NeedsAttention, match="runs/x/start"):
        await client.get("x")


# -- status ---------------------------------------------------------------------------------------


async def test_status_of_a_run_that_ended(client: Client) -> None:
    """Completed and failed, without a reason."""
    await client.run(checkout.options(id="good"), "A-1")
    with pytest.raises(RunFailed):
        await client.run(refused.options(id="bad"), "A-1")

    assert await (await client.get("good")).status() == "completed"
    assert await (await client.get("bad")).status() == "failed"


async def test_status_of_a_run_in_hand(store: Store) -> None:
    """running, while a live worker holds it."""
    gate = shop.gate("A-1")
    async with Client(store) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.run, checkout.options(id="x"), "A-1")
        await gate.reached.wait()
        status = await (await client.get("x")).status()
        gate.open.set()

    assert (status, status.reason) == ("running", "")


async def test_waiting_without_a_worker_tells_so(client: Client) -> None:
    """Nobody is there who could take it."""
    handle = await client.start(checkout, "A-1")
    status = await handle.status()

    assert (status, status.reason) == ("waiting", "no live worker")


@pytest.mark.parametrize(
    ("options", "known", "reason"),
    [
        (Options(), {}, "no live worker knows workflow 'shop.checkout'"),
        (Options(queues=("mail",)), None, "no live worker looks at queue 'default'"),
    ],
    ids=["workflow", "queue"],
)
async def test_waiting_for_other_workers_tells_so(
    bucket: Bucket, options: Options, known: dict[str, object] | None, reason: str
) -> None:
    """Workers are alive, but none of them will ever take it."""
    shown = anyio.Event()

    def look(call: Call) -> None:
        if call.name.startswith("presence/"):
            shown.set()

    store = Store(MemoryBackend(bucket, faults=look))
    served = workflows() if known is None else {}
    async with Client(store) as client, anyio.create_task_group() as tasks:
        worker = Worker(store, served, options)
        await tasks.start(worker.run)
        await shown.wait()
        await anyio.wait_all_tasks_blocked()
        status = await (await client.start(checkout, "A-1")).status()
        worker.stop()

    assert (status, status.reason) == ("waiting", reason)


async def test_attention_is_a_status_with_its_reason(bucket: Bucket, client: Client) -> None:
    """Only once nobody works on it."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    flag(bucket, handle)
    before = await handle.status()
    delete(bucket, names.marker("default", "x"))
    after = await handle.status()

    assert before == "waiting"
    assert (after, after.reason) == ("needs-attention", "drift: the code has changed")


async def test_a_start_that_was_interrupted_says_what_to_do(bucket: Bucket, client: Client) -> None:
    """`start` without a marker: nobody will look at it before it is asked for again."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    delete(bucket, names.marker("default", "x"))
    status = await handle.status()

    assert status == "waiting"
    assert "same id" in status.reason


# -- steps ----------------------------------------------------------------------------------------


async def test_steps_tell_what_is_recorded(client: Client) -> None:
    """Paths in order, values and errors readable without the code."""
    with pytest.raises(RunFailed):
        await client.run(refused.options(id="x"), "A-1")

    good, bad = await (await client.get("x")).steps()

    assert (good.path, good.name, good.outcome, good.value, good.error) == (
        "charge.1", "charge", "value", "receipt A-1", "",
    )  # fmt: skip
    assert (bad.path, bad.outcome, bad.attempts, bad.epoch) == ("refuse.1", "error", 1, 1)
    assert bad.error == "builtins.PermissionError: no A-1 here"


async def test_steps_show_a_call_that_is_being_retried(bucket: Bucket, client: Client) -> None:
    """Failed attempts without an outcome are shown as what they are."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    for number in (1, 2):
        failure = Failure("builtins.OSError", f"try {number}")
        attempt = Attempt("charge.1", number, failure, 1.0, "n", 1.0, 1)
        name = names.attempt("x", handle.instance, "charge.1", number)
        put(bucket, name, records.encode(attempt))

    (step,) = await handle.steps()

    assert (step.path, step.name, step.outcome) == ("charge.1", "charge", "retrying")
    assert (step.attempts, step.error) == (2, "builtins.OSError: try 2")


async def test_steps_of_a_damaged_run_need_attention(bucket: Bucket, client: Client) -> None:
    """A foreign object in the folder is named."""
    handle = await client.start(checkout.options(id="x"), "A-1")
    put(bucket, f"runs/x/{handle.instance}/steps/charge.1", b"{")

    with pytest.raises(NeedsAttention, match=r"steps/charge\.1"):
        await handle.steps()
