"""The test environment: virtual time, stubs, faults and assertions, on every event loop."""

from __future__ import annotations

import inspect
import math
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

import durable
from durable.errors import RunCancelled, RunFailed, UsageError
from durable.runtime.turns import in_trio
from durable.testing import (
    BlockingEnvironment,
    Environment,
    Faults,
    Stuck,
    environment,
    run,
)
from durable.testing.hosting import Backend
from tests.testing import shop
from tests.virtual_time import virtual_seconds

LOOPS = ["asyncio", pytest.param("trio", marks=pytest.mark.requires("trio"))]
SECONDS = 20.0  # of real time; far less than any of the virtual times below


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    """The event loop of the test's own code."""
    return str(request.param)


def in_loop(loop: str, main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(SECONDS):
            await main()

    anyio.run(bounded, backend=loop)


def compute() -> None:
    """Real work, for a moment."""
    sum(range(1_000_000))


def fails(times: int) -> Callable[[str], str]:
    """A body that fails so many times and then succeeds."""
    left = [times]

    def body(parcel: str) -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError("the van broke down")
        return f"shipped {parcel}"

    return body


# -- time ------------------------------------------------------------------------------------------


def test_back_off_of_months_takes_no_time(loop: str) -> None:
    """Waits between attempts pass in an instant, and virtual time says how long they were."""

    async def main() -> None:
        async with environment() as env:
            env.stub(shop.courier, fails(3))
            before, began = env.now, time.monotonic()

            value = await env.client.run(shop.place_order, "A-1")

            assert value == "receipt for A-1, shipped gift A-1"
            assert env.now - before == timedelta(hours=1 + 24 + 24 * 24)
            assert time.monotonic() - began < SECONDS / 2

    in_loop(loop, main)


def test_sync_test_runs_async_and_sync_workflows(loop: str) -> None:
    """The blocking environment needs no event loop of the test's, whatever the workflow is."""
    backend: Any = loop
    with environment(backend=backend) as env:
        assert env.client.run(shop.sync_order, "A-1") == "parcel A-1, gift A-1"
        handle = env.client.start(shop.place_order, "A-2")

        assert handle.result() == "receipt for A-2, shipped gift A-2"
        assert [step.path for step in env.steps(handle)] == ["invoice.1", "wrap_up.1", "courier.1"]


def test_run_needs_nothing_around_it() -> None:
    """`run` is one line, with the types and the errors of the workflow."""
    assert run(shop.place_order, "A-1") == "receipt for A-1, shipped gift A-1"
    assert run(shop.invoice_all, ["A", "B"]) == ["receipt for A", "receipt for B"]


def test_run_works_inside_a_running_loop(loop: str) -> None:
    """`run` blocks, but it does not mind the event loop around it."""

    async def main() -> None:
        assert run(shop.sync_order, "A-1") == "parcel A-1, gift A-1"

    in_loop(loop, main)


def test_time_stands_still_until_somebody_waits(loop: str) -> None:
    """What can be done without time is done; a body's hour passes only when time is advanced."""

    async def main() -> None:
        async with environment() as env:
            handle = await env.client.start(shop.ponder_once, 1.5)
            start = env.now
            await env.settle()

            assert await handle.status() == "running"
            assert env.now == start
            await env.advance("1h")
            assert await handle.status() == "running"
            await env.advance(timedelta(minutes=30))
            assert await handle.status() == "completed"
            assert env.now == start + timedelta(hours=1.5)

    in_loop(loop, main)


def test_time_begins_where_it_is_told() -> None:
    """`start` is the wall time at the beginning, for records and for `env.now`."""
    start = datetime(2030, 2, 28, 23, 59, tzinfo=UTC)
    with environment(start=start) as env:
        handle = env.client.start(shop.ponder_once, 0.5)
        handle.result()

        assert env.now == start + timedelta(minutes=30)
        assert env.steps(handle)[0].time == env.now.timestamp()


def test_result_times_out_in_virtual_time(loop: str) -> None:
    """`result(timeout=)` counts virtual seconds, to the second."""

    async def main() -> None:
        async with environment() as env:
            start = env.now
            handle = await env.client.start(shop.ponder_once, 10)
            with pytest.raises(TimeoutError, match="not over after 3600 s of virtual time"):
                await handle.result(timeout=3600)
            assert env.now == start + timedelta(hours=1)

    in_loop(loop, main)


def test_what_never_comes_is_an_error_not_a_hang(loop: str) -> None:
    """A body that waits for ever is told of at once, by name."""

    async def main() -> None:
        async with environment() as env:
            with pytest.raises(Stuck, match=r"stall\.1 of run 'r'") as caught:
                await env.client.run(shop.stall_once.options(id="r"))
            assert "run 'r' of 'stall_once'" in str(caught.value)

    in_loop(loop, main)


def test_time_waits_for_threads() -> None:
    """A sync body that computes for a moment takes no virtual time, and none passes it by."""

    def body(order: str, *, gift: bool = False) -> str:
        compute()
        return "packed"

    with environment() as env:
        start = env.now
        env.stub(shop.wrap_up, body)

        assert env.client.run(shop.sync_order, "A") == "packed, packed"
        assert env.now == start


def test_time_waits_for_sockets_and_threads_of_async_bodies(loop: str) -> None:
    """A body may do real work: time stands still until it comes back."""

    async def body(order: str) -> str:
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):

            async def answer(stream: anyio.abc.SocketStream) -> None:
                async with stream:
                    await anyio.to_thread.run_sync(compute)
                    await stream.send(b"paid")

            tasks.start_soon(listener.serve, answer)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                received = await stream.receive()
            tasks.cancel_scope.cancel()
        return received.decode()

    async def main() -> None:
        async with environment() as env:
            start = env.now
            env.stub(shop.invoice, body)
            assert await env.client.run(shop.invoice_all, ["A"]) == ["paid"]
            assert env.now == start

    in_loop(loop, main)


def test_same_seed_same_run() -> None:
    """Jitter, ids and tokens come from the seed: two environments record the same."""

    def records(seed: int) -> list[tuple[str, str]]:
        with environment(seed=seed) as env:
            handle = env.client.start(shop.invoice_all, ["A", "B", "C"])
            handle.result()
            return [(handle.id, step.path) for step in env.steps(handle)]

    assert records(1) == records(1)
    assert records(1) != records(2)


# -- durable waits ---------------------------------------------------------------------------------


def test_year_of_durable_sleep_takes_no_time(loop: str) -> None:
    """A run that sleeps for a year is parked, wakes on time, and the test waits milliseconds."""

    async def main() -> None:
        async with environment() as env:
            start, began = env.now, time.monotonic()
            handle = await env.client.start(shop.remind, "ada")
            await env.advance("364d")
            assert env.body_runs(handle) == {}

            assert await handle.result() == "receipt for ada after a year"
            assert env.now - start == timedelta(days=365)
            assert time.monotonic() - began < SECONDS / 4

    in_loop(loop, main)


def test_run_parked_by_a_crashed_worker_wakes_on_time() -> None:
    """The next worker wakes what the last one parked, at its moment."""
    with environment() as env:
        start = env.now
        handle = env.client.start(shop.remind, "ada")
        env.advance("1d")
        env.crash_worker()

        assert handle.result() == "receipt for ada after a year"
        assert env.now - start == timedelta(days=365)


def test_event_wakes_the_run_that_waits_for_it(loop: str) -> None:
    """An event sent by the test wakes the run at once; without one the wait ends at its time."""

    async def main() -> None:
        async with environment() as env:
            handle = await env.client.start(shop.approve, "A")
            await env.advance("2d")
            assert await handle.status() == "parked"
            start = env.now
            await handle.send("approval", "ada")
            assert await handle.result() == "receipt for A, approved by ada"
            assert env.now == start
            alone = await env.client.run(shop.approve, "B")
            assert alone == "receipt for B, approved by nobody"
            assert env.now - start == timedelta(days=7)

    in_loop(loop, main)


def test_cancelled_run_ends_cancelled(loop: str) -> None:
    """A cancellation reaches a run that sleeps, and `result` says so."""

    async def main() -> None:
        async with environment() as env:
            handle = await env.client.start(shop.remind, "ada")
            await env.advance("1d")
            await handle.cancel()
            with pytest.raises(RunCancelled):
                await handle.result()
            assert await handle.status() == "cancelled"

    in_loop(loop, main)


def test_wait_that_nobody_ends_is_told() -> None:
    """A wait without a deadline, for an event that nobody sends, is named with its run."""
    with environment() as env:
        handle = env.client.start(shop.approve_twice.options(id="r"), "A")
        handle.send("approval", "ada")
        with pytest.raises(Stuck, match=r"run 'r' of 'approve_twice' waits in event-approval\.2"):
            handle.result()


def test_schedules_run_only_when_asked_for() -> None:
    """Time passes without ticks by default; with them each has its run, at its time."""
    with environment() as env:
        env.advance("3d")
        assert list(env.client.list()) == []
    with environment(schedules=True) as env:
        env.advance("3d 1h")
        ticks = list(env.client.list(workflow="test_schedules"))
        assert len(ticks) == 3
        assert {run.status for run in ticks} == {"completed"}


# -- stubs -----------------------------------------------------------------------------------------


def test_stub_stands_in_and_notes_its_calls() -> None:
    """A stubbed body does not run; its value is recorded, its arguments are noted."""
    with environment() as env:
        charged = env.stub(shop.invoice, returns="paid")
        shipped = env.stub("courier", lambda parcel: parcel.upper())

        assert env.client.run(shop.place_order, "A") == "paid, GIFT A"
        assert [call.args for call in charged.calls] == [("A",)]
        assert [call.args for call in shipped.calls] == [("gift A",)]
        env.unstub(shop.invoice)
        assert env.client.run(shop.invoice_all, ["A"]) == ["receipt for A"]


def test_stub_raises_and_is_retried_as_the_step_is() -> None:
    """An error of a stub goes the way of one of the body: retries, then the run fails."""
    with environment() as env:
        stub = env.stub(shop.courier, raises=OSError("no van"))
        handle = env.client.start(shop.place_order, "A")
        with pytest.raises(RunFailed, match="no van"):
            handle.result()

        assert len(stub.calls) == 4
        assert env.body_runs(handle) == {"invoice.1": 1, "wrap_up.1": 1, "courier.1": 4}


def test_stub_may_be_async_for_an_async_step() -> None:
    """A stub of an async step may itself be `async def`."""

    async def body(order: str) -> str:
        await virtual_seconds(60)
        return order

    with environment() as env:
        env.stub(shop.invoice, body)
        assert env.client.run(shop.invoice_all, ["A"]) == ["A"]


async def _async_wrap(order: str) -> str:
    return order


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda env: env.stub("invoicee", returns=1), "no step named 'invoicee'.*invoice"),
        (lambda env: env.stub(shop.place_order, returns=1), "place_order is a workflow"),
        (lambda env: env.stub(len, returns=1), "len is no step"),
        (lambda env: env.stub(3, returns=1), "not for int"),
        (lambda env: env.stub(shop.invoice), "exactly one of"),
        (lambda env: env.stub(shop.invoice, len, returns=1), "exactly one of"),
        (lambda env: env.stub(shop.wrap_up, _async_wrap), "cannot be `async def`"),
        (lambda env: env.client.run(shop.invoice, "A"), "only workflows can be started"),
        (lambda env: env.advance("soon"), "'soon' is not a duration"),
        (lambda env: env.faults.fail("write", times=0), "at least once"),
        (lambda env: env.faults.fail("erase"), "no call of a store"),
    ],
)
def test_wrong_use_says_what_is_wrong(
    ask: Callable[[BlockingEnvironment], object], message: str
) -> None:
    """Each wrong argument has an error that names it, at the call."""
    with environment() as env, pytest.raises(UsageError, match=message):
        ask(env)


def test_wrong_environment_says_what_is_wrong() -> None:
    """So have the arguments of the environment itself, and its being opened twice."""
    backend: Any = "twisted"
    with (
        pytest.raises(UsageError, match="'twisted' is no event loop"),
        environment(backend=backend),
    ):
        pass
    with pytest.raises(UsageError, match="no time zone"):
        environment(start=datetime(2024, 1, 1))  # noqa: DTZ001  # the mistake under test
    twice = environment()
    with twice, pytest.raises(UsageError, match="open already"), twice:
        pass


# -- faults and crashes ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fail", "lose_reply", "double", "delay"])
def test_faults_of_the_store_change_nothing(kind: str) -> None:
    """A call that fails, loses its reply, is doubled or late: the body runs once all the same."""
    with environment() as env:
        plan: Any = getattr(env.faults, kind)
        args = ("5s",) if kind == "delay" else ()
        fault = plan(*args, "create", "*/steps/invoice.1")
        handle = env.client.start(shop.place_order, "A")

        assert handle.result() == "receipt for A, shipped gift A"
        assert [verb for verb, _ in fault.hits] == ["create"]
        assert env.body_runs(handle)["invoice.1"] == 1


def test_outage_ends_when_it_is_cleared() -> None:
    """During an outage nothing is recorded and nothing fails; afterwards the run goes on."""
    with environment() as env:
        outage = env.faults.outage()
        handle = env.client.start(shop.place_order, "A")
        env.advance("10m")
        assert env.steps(handle) == []
        assert outage.hits
        env.faults.clear()

        assert handle.result() == "receipt for A, shipped gift A"


def test_faults_serve_a_store_of_ones_own() -> None:
    """`Faults` is a hook of the memory store, and decides by verb, name and count."""
    from durable.store.memory import Call

    faults = Faults()
    faults.refuse("read", "a/*", times=2)
    faults.delay("1m", times=math.inf)
    kinds = [
        fault.kind if (fault := faults(call)) else None
        for call in [Call("read", "a/1", 1), Call("read", "b", 1), Call("read", "a/1", 2)]
    ]

    assert kinds == ["refused", "delayed", "refused"]
    after = faults(Call("read", "a/1", 3))
    assert after is not None
    assert after.kind == "delayed"


def test_crashed_worker_is_replaced_and_repeats_no_recorded_step(loop: str) -> None:
    """After a crash another worker goes on at once; what was recorded does not run again."""

    async def main() -> None:
        async with environment() as env:
            handle = await env.client.start(shop.ponder_once, 2)
            other = await env.client.start(shop.place_order, "A")
            await env.advance("1h")
            start = env.now
            await env.crash_worker()

            assert await handle.result() == 2
            assert env.now - start == timedelta(hours=2)
            assert env.body_runs(handle) == {"ponder.1": 2}
            assert await other.result() == "receipt for A, shipped gift A"
            assert set(env.body_runs(other).values()) == {1}

    in_loop(loop, main)


# -- assertions ------------------------------------------------------------------------------------


def test_assert_steps_shows_both_sides(loop: str) -> None:
    """The right list passes; a wrong one shows what was expected, and what was recorded with it."""

    async def main() -> None:
        async with environment() as env:
            handle = await env.client.start(shop.place_order.options(id="c"), "A")
            await handle.result()
            await env.assert_steps(handle, ["invoice.1", "wrap_up.1", "courier.1"])
            with pytest.raises(AssertionError) as caught:
                await env.assert_steps(handle, ["invoice.1", "mail.1", "courier.1"])
            assert str(caught.value).splitlines() == [
                "run 'c' has other steps than expected (- expected, + recorded):",
                "    invoice.1",
                "  - mail.1  (not recorded)",
                "  + wrap_up.1  (value 'gift A')",
                "    courier.1",
            ]

    in_loop(loop, main)


def test_both_environments_have_the_same_words() -> None:
    """Whatever the async environment has, the blocking one has, with the same parameters."""
    for name in vars(Environment).keys() | vars(BlockingEnvironment).keys():
        if not name.startswith("_") and name != "client":
            ours = inspect.signature(getattr(Environment, name))
            theirs = inspect.signature(getattr(BlockingEnvironment, name))
            assert list(ours.parameters) == list(theirs.parameters), name


def test_client_words_cross_the_loops(loop: str) -> None:
    """Lists, leases, claims and handles of the environment's client work from any loop."""

    async def main() -> None:
        async with environment() as env:
            handle = await env.client.start(shop.place_order.options(id="c"), "A")
            await handle.result()
            assert [summary.id async for summary in env.client.list()] == ["c"]
            assert await (await env.client.get("c")).status() == "completed"
            async with env.client.hold("daily") as lease:
                assert lease.held
                assert lease.epoch == 1
            assert (await env.client.claim("k", 1)).won
            assert (await env.client.claims.get("k")) is not None
            assert repr(handle) == "<handle of run 'c', workflow place_order>"

    in_loop(loop, main)


def test_cancelled_wait_leaves_the_environment_usable(loop: str) -> None:
    """A test that cancels its own wait can go on asking."""
    begun, end = threading.Event(), threading.Event()

    def body(order: str, *, gift: bool = False) -> str:
        begun.set()
        assert end.wait(SECONDS)
        return order

    async def main() -> None:
        async with environment() as env:
            env.stub(shop.wrap_up, body)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(env.client.run, shop.sync_order, "A")
                assert await anyio.to_thread.run_sync(begun.wait, SECONDS)
                tasks.cancel_scope.cancel()
            end.set()
            env.unstub(shop.wrap_up)
            assert await env.client.run(shop.sync_order, "B") == "parcel B, gift B"

    in_loop(loop, main)


def test_nothing_is_left_behind() -> None:
    """When an environment is closed its thread has ended, also with bodies in flight."""
    with environment() as env:
        env.client.start(shop.stall_once)
        env.client.start(shop.ponder_once, 5)
        env.settle()

    assert not [t for t in threading.enumerate() if t.name == "durable.testing"]


def test_blocking_call_inside_the_environment_is_refused() -> None:
    """A step that blocks its own event loop on the environment is told so, not deadlocked."""
    with environment() as env:

        async def body(order: str) -> str:
            return env.client.run(shop.sync_order, order)

        env.stub(shop.invoice, body)
        with pytest.raises(RunFailed, match="inside its own event loop"):
            env.client.run(shop.invoice_all, ["A"])


def test_backends_are_what_they_say(loop: str) -> None:
    """Steps run on the loop that is asked for, by default on the test's."""

    def where(order: str) -> str:
        return "trio" if in_trio() else "asyncio"

    async def main() -> None:
        async with environment() as env:
            env.stub(shop.invoice, where)
            assert await env.client.run(shop.invoice_all, ["A"]) == [loop]

    in_loop(loop, main)
    backend: Backend = "asyncio"
    with environment(backend=backend) as env:
        env.stub(shop.invoice, where)
        assert env.client.run(shop.invoice_all, ["A"]) == ["asyncio"]


def test_run_refuses_what_is_no_workflow() -> None:
    """`run` of a step says that only workflows can be started."""
    step: Any = durable.step(name="test_run_refuses")(lambda: 1)
    with pytest.raises(UsageError, match="only workflows can be started"):
        run(step)


def test_fault_of_durable_itself_is_raised_where_it_is_noticed() -> None:
    """If the environment's own tasks fail, the next call says what failed, not that it ended."""

    async def fail() -> None:
        raise LookupError("a fault")

    def use() -> None:
        with environment() as env:
            env._host.call(lambda: _start(env._world, fail))
            with pytest.raises(BaseExceptionGroup, match="unhandled errors"):
                env.client.run(shop.stall_once)

    with pytest.raises(BaseExceptionGroup, match="unhandled errors"):
        use()


async def _start(world: Any, work: Callable[[], Awaitable[None]]) -> None:
    world._tasks.start_soon(work)
