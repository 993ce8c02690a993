"""Steps and runs that take too long, and retries that stop at a time."""

from __future__ import annotations

import logging
import threading
from typing import Any

import anyio
import pytest

import durable
from durable import testing
from durable.decorators import step, workflow
from durable.errors import RunTimeout, StepTimeout, UsageError
from durable.protocol import records
from durable.protocol.failures import from_exception
from durable.protocol.records import Attempt
from durable.protocol.retries import Retry
from durable.runtime.facts import Facts
from durable.testing.virtual import virtual_bucket
from tests.runtime.clocks import BACKENDS, run, run_with_threads, virtual
from tests.runtime.runs import Run, a_step, a_workflow, error_of, value_of
from tests.runtime.world import DiesAt, World, world
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)

THREE = Retry(attempts=3, first=1, factor=1, jitter=False)


# -- an attempt -----------------------------------------------------------------------------------


@backends
def test_an_async_body_is_cancelled_and_tried_again(backend: str) -> None:
    """An attempt that takes too long is cancelled and recorded; the next may succeed."""
    seen: list[str] = []

    @a_step(timeout=5, retry=THREE)
    async def slow() -> int:
        try:
            await virtual_seconds(60 if durable.current().attempt < 3 else 1)
        except anyio.get_cancelled_exc_class():
            seen.append(f"cancelled after {anyio.current_time() - began:g} s")
            raise
        return durable.current().attempt

    async def w() -> int:
        return int(await slow())

    one = Run(a_workflow(w))

    async def main() -> int:
        nonlocal began
        one.bucket = virtual_bucket()
        began = anyio.current_time()
        return int(value_of(await one.execute()))

    began = 0.0
    assert run(backend, main) == 3
    assert seen == ["cancelled after 5 s", "cancelled after 11 s"]
    assert [(a.attempt, a.failure.type) for a in one.attempts()] == [
        (1, "durable.errors.StepTimeout"), (2, "durable.errors.StepTimeout"),
    ]  # fmt: skip


@backends
def test_the_last_timeout_is_the_outcome(backend: str) -> None:
    """What the workflow catches is a TimeoutError that names step and limit, live and replayed."""

    @a_step(attempts=1)
    async def slow() -> None:
        await anyio.sleep_forever()

    async def w() -> str:
        try:
            await slow.options(timeout="1h30m")()
        except TimeoutError as e:
            return f"{type(e).__name__}: {e}"
        return ""

    one = Run(a_workflow(w))

    async def main() -> list[str]:
        return [value_of(await one.execute()), value_of(await one.execute())]

    said = "StepTimeout: attempt 1 of step 'slow' did not end within 5400 s"
    assert run(backend, main) == [said, said]


@backends
def test_a_body_that_ends_in_time_is_left_alone(backend: str) -> None:
    """A value that comes in spite of the cancellation counts; a body's own TimeoutError too."""

    @a_step(timeout=5)
    async def stubborn() -> str:
        try:
            await virtual_seconds(60)
        except anyio.get_cancelled_exc_class():
            return "done all the same"
        return ""

    @a_step(timeout=5, attempts=1)
    async def own() -> None:
        with anyio.fail_after(1):
            await virtual_seconds(60)

    async def w() -> list[str]:
        first = await stubborn()
        try:
            await own()
        except TimeoutError as e:
            return [first, type(e).__name__]
        return []

    one = Run(a_workflow(w))

    assert run(backend, one.execute) is not None
    assert value_of(one.execution and one.execution.closing) == [
        "done all the same", "TimeoutError",
    ]  # fmt: skip


@backends
def test_users_own_timeout_around_a_step_is_no_step_timeout(backend: str) -> None:
    """A cancellation from around the call still abandons it, limit or not."""

    @a_step(timeout=50)
    async def slow() -> None:
        await anyio.sleep_forever()

    async def w() -> str:
        with anyio.move_on_after(2):
            await slow()
        return "moved on"

    one = Run(a_workflow(w))

    assert value_of(run(backend, one.execute)) == "moved on"
    assert one.steps()["slow.1"].outcome == "abandoned"
    assert one.attempts() == []


@backends
def test_after_a_timed_out_step_a_fan_out_ends(backend: str) -> None:
    """A step times out, its retry succeeds, then five new steps at once: no slot is used twice."""

    @a_step(timeout=5, retry=THREE)
    async def slow() -> int:
        await virtual_seconds(60 if durable.current().attempt == 1 else 1)
        return 0

    @a_step
    async def quick(i: int) -> int:
        return i

    async def w() -> list[int]:
        first = await slow()
        return [first, *await durable.gather(*[quick(i) for i in range(1, 6)])]

    one = Run(a_workflow(w))

    assert value_of(run(backend, one.execute)) == [0, 1, 2, 3, 4, 5]
    assert len(one.steps()) == 6


@backends
def test_a_sync_body_is_left_behind_and_told(backend: str, caplog: Any) -> None:
    """The run goes on without the thread, which reads it from its flag; a warning is logged."""
    told = threading.Event()

    @a_step(timeout=0.05, attempts=1)
    def slow() -> None:
        me = durable.current()
        while not me.cancelled:
            threading.Event().wait(0.005)
        told.set()

    async def w() -> str:
        try:
            await slow.call()
        except StepTimeout:
            return "went on"
        return ""

    one = Run(a_workflow(w))

    with caplog.at_level(logging.WARNING, "durable"):
        assert value_of(run_with_threads(backend, one.execute)) == "went on"
    assert told.wait(10)
    assert "did not end within 0.05 s; its thread goes on" in caplog.text


@backends
def test_in_a_sync_workflow_too(backend: str) -> None:
    """A sync workflow catches the timeout of a sync step like any error."""

    @a_step(timeout=0.05, attempts=1)
    def slow() -> None:
        while not durable.current().cancelled:
            threading.Event().wait(0.005)

    def w() -> str:
        try:
            slow()
        except TimeoutError:
            return "went on"
        return ""

    assert value_of(run_with_threads(backend, lambda: Run(a_workflow(w)).execute())) == "went on"


# -- the time that all attempts may take -----------------------------------------------------------


@backends
def test_max_elapsed_counts_across_owners(backend: str) -> None:
    """The time runs from the first attempt, whichever process made it."""

    @a_step(retry=Retry(attempts=100, first=4, factor=1, jitter=False, max_elapsed=30))
    async def fail() -> None:
        raise ValueError(durable.current().attempt)

    async def w() -> None:
        await fail()

    one = Run(a_workflow(w))

    async def main() -> list[int]:
        one.bucket = virtual_bucket()
        began = one.bucket.now()
        await virtual_seconds(20)
        now = one.bucket.now()
        failure = from_exception(ValueError(1))
        one.put_attempt(Attempt("fail.1", 1, failure, now, "a1", now, 1, began=began))
        error = error_of(await one.execute())
        return [error.args[0], *[a.attempt for a in one.attempts()]]

    # Attempts begin after 20, 24 and 28 s; the next would after 32.
    assert run(backend, main) == [4, 1, 2, 3]


# -- long waits between attempts -------------------------------------------------------------------


@step(
    name="timeouts-test patient",
    retry=Retry(attempts=3, first="20m", max="20m", factor=1, jitter=False),
)
async def patient() -> int:
    if durable.current().attempt < 3:
        raise ConnectionError
    return durable.current().attempt


@workflow(name="timeouts-test long waits")
async def long_waits() -> int:
    return await patient()


@step(name="timeouts-test 15 s", retry=Retry(attempts=3, first=15, factor=1, jitter=False))
async def less_patient() -> int:
    return await patient()  # in a body: the plain function


@workflow(name="timeouts-test waits")
async def waits() -> int:
    return await less_patient()


@workflow(name="timeouts-test long waits at once")
async def long_waits_at_once() -> list[int]:
    return list(await durable.gather(patient(), patient()))


@pytest.mark.anyio
@pytest.mark.requires("trio")
@pytest.mark.parametrize("always_park", [False, True])
async def test_a_long_wait_for_an_attempt_parks_the_run(always_park: bool) -> None:
    """It holds no worker meanwhile and costs no store call; each attempt begins in its time."""
    async with world() as w:
        process = await w.process(always_park=always_park)
        start = await w.start("r", long_waits)
        await w.until(lambda: not process.worker.runners and bool(w.hints("timers/")))

        assert not w.hints("live/")
        writes = w.writes()
        await virtual_seconds(1000)
        assert [n for n in w.writes()[len(writes) :] if "/r" in n] == []
        assert await w.result("r") == 3
        facts = await w.facts("r")
        assert facts.result is not None
        assert 2400 <= facts.result.time - start.created < 2500
        await w.until(lambda: not w.hints("timers/") and not w.hints("live/"))


@pytest.mark.anyio
@pytest.mark.requires("trio")
async def test_two_of_them_at_once() -> None:
    """The run is parked until the next of both."""
    async with world() as w:
        await w.process()
        await w.start("r", long_waits_at_once)

        assert await w.result("r") == [3, 3]


@pytest.mark.anyio
@pytest.mark.requires("trio")
@pytest.mark.parametrize("applied", [False, True], ids=["unsent", "applied"])
async def test_a_death_at_any_call_around_the_park(applied: bool) -> None:
    """No attempt is lost and none is charged twice."""
    at = 0
    while True:
        at += 1
        async with world() as w:
            death = DiesAt(at, applied)
            assert await w.survive("r", waits, death) == 3, f"died at call {at}"
            assert [a.attempt for a in (await w.facts("r")).attempts] == [1, 2]
        if not death.died:
            break
    assert at > 15


@step(name="timeouts-test patient sync", retry=Retry(attempts=3, first="1d", max="1d", factor=1))
def patient_sync() -> int:
    if durable.current().attempt < 3:
        raise ConnectionError
    return durable.current().attempt


@workflow(name="timeouts-test sync long waits")
def sync_long_waits() -> int:
    return patient_sync()


def test_a_sync_workflow_is_parked_too() -> None:
    """Its thread ends with the park, and another one goes on."""
    with testing.environment() as env:
        handle = env.client.start(sync_long_waits)
        env.settle()
        assert handle.status() == "parked"
        env.advance("2d")
        assert handle.result() == 3


# -- a run -----------------------------------------------------------------------------------------


@step(name="timeouts-test nap")
async def nap() -> None:
    await virtual_seconds(1000)


@workflow(name="timeouts-test limited", timeout=60)
async def limited() -> None:
    try:
        await nap()
    finally:
        await nap()


@workflow(name="timeouts-test busy", timeout=60)
async def busy() -> None:
    while True:
        await quick()


@step(name="timeouts-test quick")
async def quick() -> None:
    await virtual_seconds(7)


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


async def ended(w: World, run_id: str) -> Facts:
    await w.result(run_id)
    return await w.facts(run_id)


@pytest.mark.anyio
@pytest.mark.parametrize("flow", [limited, busy], ids=lambda f: f.name)
async def test_a_run_fails_at_its_deadline(flow: Any) -> None:
    """Wherever its code stands and whatever it does then."""
    async with world() as w:
        await w.process()
        start = await w.start("r", flow)

        facts = await ended(w, "r")

        assert facts.result is not None
        assert facts.result.status == "failed"
        assert facts.result.failure is not None
        assert facts.result.failure.type == "durable.errors.RunTimeout"
        assert 60 <= facts.result.time - start.created < 62


@pytest.mark.anyio
async def test_crashes_do_not_put_the_deadline_off() -> None:
    """Its owner dies every 20 s, or nobody owns it: the run still fails 60 s after its start."""
    async with world() as w:
        start = await w.start("r", busy)
        for _ in range(2):
            process = await w.process()
            await virtual_seconds(20)
            process.kill()
        await w.process()

        facts = await ended(w, "r")

        assert facts.result is not None
        assert 60 <= facts.result.time - start.created < 62

    async with world() as w:
        await w.start("r", limited)
        await virtual_seconds(100)
        await w.process()

        facts = await ended(w, "r")

        assert facts.result is not None
        assert facts.result.status == "failed"
        assert facts.steps == []


@pytest.mark.anyio
async def test_a_run_that_is_over_in_time_has_no_deadline() -> None:
    """The limit does not outlive the run."""

    @workflow(name="timeouts-test in time", timeout=60)
    async def in_time() -> int:
        await quick()
        return 1

    async with world() as w:
        await w.process()
        await w.start("r", in_time)

        assert await w.result("r") == 1
        await virtual_seconds(100)
        assert await w.result("r") == 1


@pytest.mark.anyio
async def test_no_deadline_takes_no_room() -> None:
    """The `start` of a run without a limit says nothing of one."""

    @workflow(name="timeouts-test limitless")
    async def limitless() -> None:
        await quick()

    async with world() as w:
        start = await w.start("r", limitless)

        assert b"deadline" not in records.encode(start)


# -- misuse ----------------------------------------------------------------------------------------


async def nothing() -> None: ...


@pytest.mark.parametrize("limit", [0, "0s", -1, float("nan"), float("inf"), "soon", True])
@pytest.mark.parametrize(
    ("decorator", "option"),
    [
        (step, "timeout"), (step, "heartbeat_timeout"), (workflow, "timeout"),
        (workflow, "cleanup_timeout"), (quick.options, "timeout"), (limited.options, "timeout"),
    ],
)  # fmt: skip
def test_bad_limits(decorator: Any, option: str, limit: Any) -> None:
    """A limit that is no length of time is refused where it is written, by its name."""
    with pytest.raises(UsageError, match=f"^{option}="):
        decorator(**{option: limit})(nothing)


def test_a_policy_that_is_none() -> None:
    """What is no `Retry`, or no number of attempts, is refused where it is written."""
    for retry in (5, Retry, {"attempts": 5}):
        with pytest.raises(UsageError, match="retry must be a Retry"):
            step(retry=retry)(lambda: None)  # type: ignore[call-overload]  # wrong on purpose
    for attempts in (0, -1, 1.5, True, "3"):
        with pytest.raises(UsageError, match="attempts must be a whole number"):
            step(attempts=attempts)(lambda: None)  # type: ignore[call-overload]  # as above
        with pytest.raises(UsageError, match="attempts must be a whole number"):
            quick.options(attempts=attempts)  # type: ignore[arg-type]  # as above


@backends
def test_a_predicate_that_breaks_is_told(backend: str) -> None:
    """The step's own error is final, with a note that the policy could not be asked."""

    def breaks(error: Exception) -> bool:
        raise KeyError("status")

    @a_step(retry=Retry(retry_if=breaks))
    async def fail() -> None:
        raise ConnectionError("down")

    async def w() -> None:
        await fail()

    one = Run(a_workflow(w))

    async def main() -> list[BaseException]:
        return [error_of(await one.execute()), error_of(await one.execute())]

    for error in run(backend, main):
        assert str(error) == "down"
        assert error.__notes__ == ["not tried again: retry_if raised KeyError: 'status'"]
    assert one.attempts() == []


def test_errors_are_timeouts() -> None:
    """Both are TimeoutErrors, so one handler fits."""
    assert issubclass(StepTimeout, TimeoutError)
    assert issubclass(RunTimeout, TimeoutError)
