"""A run that is closed records nothing more, whatever its code does (P6, P11)."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import anyio
import pytest

import durable
from durable.protocol.retries import Retry
from durable.runtime.closing import Closing, Finished, Stopped
from durable.runtime.execution import Execution
from durable.runtime.surroundings import Progress
from durable.store.memory import Call, Fault
from tests.facts import becomes_true
from tests.runtime.clocks import BACKENDS, SECONDS_MAX, run, run_with_threads
from tests.runtime.runs import Run, a_step, a_workflow, value_of
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)

LEASE = Stopped("lease")
seen: list[Any] = []  # what workflow code noticed; each test begins with `seen.clear()`


@pytest.fixture(autouse=True)
def _clear() -> None:
    seen.clear()


@a_step
async def s(x: int) -> int:
    return x * 10


@a_step
async def forever(x: int) -> int:
    try:
        await anyio.sleep_forever()
    finally:
        seen.append(f"body {x} left")
    raise AssertionError


@a_step(attempts=1)
async def bad(x: int) -> int:
    raise ValueError(f"bad {x}")


@a_step
def slow(x: int) -> int:
    return x + 1


async def at_rest(execution: Execution) -> None:
    """Until everything waits; virtual time passes only then."""
    await virtual_seconds(1)


async def close(execution: Execution) -> None:
    await at_rest(execution)
    execution.close(LEASE)


def closed(backend: str, one: Run) -> Closing | None:
    """How the run ends if it is closed after a second."""

    async def main() -> Closing | None:
        return await one.execute(meanwhile=close)

    return run(backend, main)


@backends
def test_body_is_cancelled(backend: str) -> None:
    """Closing the run cancels the body in flight and records nothing."""

    async def w() -> int:
        return int(await forever(1))

    one = Run(a_workflow(w))

    assert closed(backend, one) is LEASE
    assert seen == ["body 1 left"]
    assert one.steps() == {}


@backends
def test_calls_in_finally(backend: str) -> None:
    """Each durable call in `finally` raises the cancellation again, and starts no body."""

    async def w() -> int:
        try:
            return int(await forever(1))
        finally:
            for i in range(3):
                try:
                    await s(i)
                except BaseException as e:
                    seen.append(type(e) is not ValueError)

    one = Run(a_workflow(w))

    assert closed(backend, one) is LEASE
    assert seen == ["body 1 left", True, True, True]
    assert one.begun == ["forever.1"]
    assert one.steps() == {}


@backends
@pytest.mark.parametrize("ending", ["return", "raise"])
def test_end_of_an_unwinding_function(backend: str, ending: str) -> None:
    """What a function returns or raises after it was closed is ignored."""

    async def w() -> str:
        try:
            await forever(1)
        except BaseException:
            if ending == "raise":
                raise ValueError("not an outcome") from None
        return "not an outcome"

    assert closed(backend, Run(a_workflow(w))) is LEASE


@backends
def test_users_shield(backend: str) -> None:
    """A shield of the user's does not keep a closed run from unwinding."""

    async def w() -> None:
        with anyio.CancelScope(shield=True):
            await forever(1)

    assert closed(backend, Run(a_workflow(w))) is LEASE


@backends
def test_shielded_group(backend: str) -> None:
    """Nor do shields around a gather."""

    async def w() -> None:
        with anyio.CancelScope(shield=True):
            await durable.gather(forever(1), forever(2))

    one = Run(a_workflow(w))

    assert closed(backend, one) is LEASE
    assert sorted(seen) == ["body 1 left", "body 2 left"]


def test_stray_task() -> None:
    """A task that user code created and did not await unwinds as well."""

    async def w() -> None:
        task = asyncio.create_task(forever(1))
        await s(1)
        await forever(2)
        await task

    one = Run(a_workflow(w))

    assert closed("asyncio", one) is LEASE
    assert sorted(seen) == ["body 1 left", "body 2 left"]


def test_task_left_running() -> None:
    """A workflow that fails while a task of its own runs a body ends that body, unrecorded."""

    async def w() -> None:
        asyncio.create_task(forever(1))  # noqa: RUF006  # nobody keeps it, on purpose
        await s(1)
        raise ValueError("the end")

    one = Run(a_workflow(w))

    async def main() -> tuple[Closing | None, list[Any]]:
        closing = await one.execute()
        await virtual_seconds(1)
        return closing, list(seen)

    closing, left = run("asyncio", main)
    assert isinstance(closing, Finished)
    assert left == ["body 1 left"]
    assert list(one.steps()) == ["s.1"]


@backends
def test_many_branches_unwind(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """Hundreds of branches that are each refused once are no sign of code that does not stop."""

    async def branch(x: int) -> None:
        try:
            await forever(x)
        finally:
            await s(x)

    async def w() -> None:
        await durable.map(branch, range(300), limit=300)

    one = Run(a_workflow(w))

    assert closed(backend, one) is LEASE
    assert len(seen) == 300
    assert "does not unwind" not in caplog.text


def test_code_that_swallows_everything(caplog: pytest.LogCaptureFixture) -> None:
    """After 100 refusals a call does not return: the run counts as ended, the task is left."""
    done: list[bool] = []

    async def w() -> None:
        while not done:
            try:
                await forever(1)
            except BaseException:
                seen.append("swallowed")

    one = Run(a_workflow(w))

    async def main() -> None:
        async def watch(execution: Execution) -> None:
            await close(execution)
            await execution.ended.wait()
            assert execution.closing is LEASE
            assert seen.count("swallowed") == 100 + 1  # its body, then the refusals
            done.append(True)
            host = [t for t in asyncio.all_tasks() if "run_to_end" in t.get_name()]
            assert len(host) == 1
            host[0].cancel()  # so that the test can end; a worker goes on without it

        with caplog.at_level(logging.WARNING, logger="durable"):
            await one.execute(meanwhile=watch)

    run("asyncio", main)
    assert "does not unwind" in caplog.text
    assert one.steps() == {}


@backends
def test_sync_workflow(backend: str) -> None:
    """In a thread the next durable call raises; the steps before it stay recorded."""
    left = threading.Event()

    def w() -> int:
        first = slow(1)
        assert one.execution is not None
        anyio.from_thread.run_sync(one.execution.close, LEASE)
        try:
            return first + slow(2)  # type: ignore[no-any-return]  # what a call returns depends on where it is made
        except BaseException as e:
            seen.append(type(e).__name__)
            left.set()
            raise

    one = Run(a_workflow(w))

    assert run_with_threads(backend, one.execute) is LEASE
    assert left.wait(SECONDS_MAX)
    assert seen == ["Unwinding"]
    assert list(one.steps()) == ["slow.1"]


# -- the lease -----------------------------------------------------------------------------------


class Trust:
    """A lease that is lost when the test says so."""

    def __init__(self) -> None:
        self.held = True

    def __call__(self) -> bool:
        return self.held


@backends
def test_without_the_lease(backend: str) -> None:
    """An owner past its deadline starts no body and sends no write."""

    async def w() -> int:
        return int(await s(1))

    one = Run(a_workflow(w))

    async def main() -> Closing | None:
        return await one.execute(trusted=lambda: False)

    assert run(backend, main) == LEASE
    assert one.begun == []
    assert "create" not in one.calls()


@backends
@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("calls_from", ["task", "thread"])
def test_lease_lost_before_a_thread_starts(backend: str, calls_from: str, comes_back: bool) -> None:
    """A sync body whose thread starts after the lease was lost does not run."""
    trust = Trust()

    @a_step
    def late() -> None:
        seen.append("body")

    async def in_task() -> None:
        await late.call()
        seen.append("went on")

    def in_thread() -> None:
        late()
        seen.append("went on")

    def trusted() -> bool:
        if comes_back:  # as of a machine that was suspended: the event loop does not notice
            return threading.get_ident() == loop_thread
        return trust()

    class Stopping(Run):
        def _observe(self, run: str, progress: Progress) -> None:
            """The process is stopped just after the event loop's own look at the lease."""
            super()._observe(run, progress)
            trust.held = False

    one = Stopping(a_workflow(in_task if calls_from == "task" else in_thread))
    loop_thread = threading.get_ident()

    async def main() -> Closing | None:
        return await one.execute(trusted=trusted)

    assert run_with_threads(backend, main) == LEASE
    assert one.begun == ["late.1"]
    assert seen == []
    assert one.steps() == {}
    assert one.attempts() == []


@backends
@pytest.mark.parametrize("outcome", ["value", "failed attempt", "abandoned"])
def test_lease_lost_during_a_body(backend: str, outcome: str) -> None:
    """What a body comes to after the lease was lost is not recorded."""
    trust = Trust()

    @a_step
    async def losing() -> int:
        if outcome == "abandoned":
            await virtual_seconds(1)
        trust.held = False
        if outcome == "failed attempt":
            raise ValueError
        if outcome == "abandoned":
            await virtual_seconds(10)
        return 1

    async def w() -> None:
        with anyio.move_on_after(5):
            await losing()
        await s(1)

    one = Run(a_workflow(w))

    async def main() -> Closing | None:
        return await one.execute(trusted=trust)

    assert run(backend, main) == LEASE
    assert one.steps() == {}
    assert one.attempts() == []
    assert one.begun == ["losing.1"]


@backends
def test_lease_lost_during_a_write(backend: str) -> None:
    """An outcome whose write is acknowledged after the lease was lost is not handed over."""
    trust = Trust()

    async def w() -> None:
        seen.append(await s(1))

    def slow_create(call: Call) -> Fault | None:
        if call.verb != "create":
            return None
        trust.held = False
        return Fault("delayed", seconds=1)

    one = Run(a_workflow(w), faults=slow_create)

    async def main() -> Closing | None:
        return await one.execute(trusted=trust)

    assert run(backend, main) == LEASE
    assert list(one.steps()) == ["s.1"]
    assert seen == []


@backends
def test_store_that_refuses(backend: str) -> None:
    """A write refused for good closes the run; its outcome is seen by nobody."""

    async def w() -> None:
        seen.append(await s(1))

    def refuse(call: Call) -> Fault | None:
        return Fault("refused") if call.verb == "create" else None

    one = Run(a_workflow(w), faults=refuse)

    async def main() -> Closing | None:
        return await one.execute()

    closing = run(backend, main)
    assert isinstance(closing, Stopped)
    assert closing.why == "store"
    assert closing.error is not None
    assert seen == []


@backends
def test_late_record(backend: str) -> None:
    """A create lost to another owner's record is not handed over; the run lists again."""

    async def w() -> int:
        return int(await s(1))

    one = Run(a_workflow(w))
    other = Run(a_workflow(w), bucket=one.bucket)

    async def main() -> tuple[Closing | None, Any]:
        async def overtake(execution: Execution) -> None:
            execution.ownership.epoch = 7  # its records are another owner's
            other.faults = None

        execution = await one._prepare(lambda: True, False, None)
        await other.execute(meanwhile=overtake)
        async with anyio.create_task_group() as tasks:
            await execution.run_to_end(tasks.start_soon)
        return execution.closing, value_of(await one.execute())

    closing, value = run(backend, main)
    assert type(closing).__name__ == "LateRecord"
    assert value == 10
    assert one.begun == []


# -- drain ---------------------------------------------------------------------------------------


async def drain(execution: Execution) -> None:
    await at_rest(execution)
    execution.drain()


@backends
def test_drain_waits_for_a_body(backend: str) -> None:
    """A draining run records the body in flight, starts no other, and stops."""

    @a_step
    async def takes_five(x: int) -> int:
        await virtual_seconds(5)
        return x

    async def w() -> None:
        await takes_five(1)
        await s(1)

    one = Run(a_workflow(w))

    async def main() -> Closing | None:
        return await one.execute(meanwhile=drain)

    assert run(backend, main) == Stopped("drain")
    assert list(one.steps()) == ["takes_five.1"]
    assert one.begun == ["takes_five.1"]


@backends
def test_drain_between_attempts(backend: str) -> None:
    """A run that waits for its next attempt has no body in flight: it stops at once."""

    @a_step(retry=Retry(attempts=3, first=9, factor=1))
    async def failing() -> None:
        raise ValueError

    async def w() -> None:
        await failing()

    one = Run(a_workflow(w))

    async def main() -> tuple[Closing | None, float]:
        began = anyio.current_time()
        closing = await one.execute(meanwhile=drain)
        return closing, anyio.current_time() - began

    closing, seconds = run(backend, main)
    assert closing == Stopped("drain")
    assert seconds < 2
    assert len(one.attempts()) == 1
    assert one.steps() == {}


# -- durable.unwinding ----------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["lease", "drain", "cancelled"])
@backends
def test_code_can_tell_that_it_is_unwound(backend: str, why: str) -> None:
    """In `finally`, of the function, of a branch, of a body and of a task of the user's own."""

    @a_step
    async def body(x: int) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(("body", x, durable.unwinding()))

    async def own() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(("task", durable.unwinding()))

    async def branch(x: int) -> None:
        try:
            await body(x)
        finally:
            seen.append(("branch", x, durable.unwinding()))

    async def w() -> None:
        seen.append(durable.unwinding())
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(own)
                await durable.gather(branch(1), branch(2))
        finally:
            seen.append(durable.unwinding())

    one = Run(a_workflow(w))

    async def main() -> None:
        async def meanwhile(execution: Execution) -> None:
            await at_rest(execution)
            execution.close(Stopped(why))

        await one.execute(meanwhile=meanwhile)
        assert not durable.unwinding()

    run(backend, main)

    assert seen[0] is False
    assert seen[-1] is True
    assert sorted(seen[1:-1]) == [
        ("body", 1, True), ("body", 2, True), ("branch", 1, True), ("branch", 2, True),
        ("task", True),
    ]  # fmt: skip
    assert one.steps() == {}


@backends
def test_a_thread_can_tell_that_it_is_unwound(backend: str) -> None:
    """In the `finally` of a sync workflow, and outside any run it is not so."""

    def w() -> None:
        try:
            durable.sync.run(forever(1))
        finally:
            seen.append(durable.unwinding())

    one = Run(a_workflow(w))

    async def meanwhile(execution: Execution) -> None:
        await becomes_true(lambda: bool(one.begun))
        execution.close(LEASE)

    async def main() -> None:
        await one.execute(meanwhile=meanwhile)
        await becomes_true(lambda: any(isinstance(entry, bool) for entry in seen))

    run_with_threads(backend, main)

    assert [entry for entry in seen if isinstance(entry, bool)] == [True]
    assert not durable.unwinding()


@backends
def test_errors_and_ends_are_no_unwinding(backend: str) -> None:
    """A run that fails, ends or is cancelled is over: its `finally` is the last word."""

    async def w(how: str) -> None:
        try:
            if how == "fails":
                await bad(1)
            await forever(1) if how == "cancelled" else await s(1)
        finally:
            seen.append(durable.unwinding())

    async def meanwhile(execution: Execution) -> None:
        await at_rest(execution)
        execution.cancelling.ask(one.put_cancel())

    for how in ("fails", "ends", "cancelled"):
        one = Run(a_workflow(w), (how,))
        run(backend, lambda one=one: one.execute(meanwhile=meanwhile))  # type: ignore[misc]  # mypy infers no default of a lambda

    assert [entry for entry in seen if isinstance(entry, bool)] == [False] * 3
