"""Bodies that say that they are alive, and how far they have come."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

import durable
from durable.decorators import step, workflow
from durable.errors import InvalidArguments, NotInWorkflow, StepTimeout
from durable.protocol import names, values
from durable.protocol.records import Beat
from durable.protocol.retries import Retry
from durable.testing.virtual import virtual_bucket
from tests.facts import SECONDS_MAX, until
from tests.runtime.by_hand import ClockByHand
from tests.runtime.clocks import BACKENDS, run, run_with_threads, virtual
from tests.runtime.runs import INSTANCE, RUN, Run, a_step, a_workflow, value_of
from tests.runtime.world import DiesAt, world
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)

TWICE = Retry(attempts=2, first=0)


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    seen.clear()
    return virtual(request.param)


seen: list[int] = []  # from where each body went on


@step(name="beats-test count")
async def count(to: int) -> int:
    """Counts, one a second; goes on where the last body stopped."""
    at = durable.current().heartbeat_details or 0
    assert isinstance(at, int)
    seen.append(at)
    while at < to:
        await virtual_seconds(1)
        at += 1
        durable.current().heartbeat(at)
    return at


@workflow(name="beats-test flow")
async def flow(to: int) -> int:
    return await count(to)


# -- details ---------------------------------------------------------------------------------------


@backends
def test_the_next_attempt_gets_the_details(backend: str) -> None:
    """The newest ones, with their types, whether or not they were written."""
    told: list[object] = []

    @a_step(retry=Retry(attempts=3, first=0))
    async def work() -> None:
        me = durable.current()
        told.append(me.heartbeat_details)
        if me.attempt == 1:
            me.heartbeat("early")
            me.heartbeat({"page": 7, "seen": {1, 2}})
        if me.attempt < 3:
            raise ConnectionError

    async def w() -> None:
        await work()

    one = Run(a_workflow(w))

    assert value_of(run(backend, one.execute)) is None
    assert told == [None, {"page": 7, "seen": {1, 2}}, {"page": 7, "seen": {1, 2}}]
    assert [values.decode(a.details) for a in one.attempts() if a.details] == [
        {"page": 7, "seen": {1, 2}}, {"page": 7, "seen": {1, 2}},
    ]  # fmt: skip


@backends
def test_the_newest_record_counts(backend: str) -> None:
    """A beat of a later attempt, or of the same one under a later owner, goes before."""
    one = Run(a_workflow(lambda: None))

    def put(attempt: int, epoch: int, details: str) -> None:
        raw = msgspec.Raw(values.encode(details))
        beat = Beat("work.1", attempt, epoch, f"b{attempt}{epoch}", 0.0, raw)
        one._put(names.beat(RUN, INSTANCE, "work.1", epoch), beat, beat.nonce)

    @a_step
    async def work() -> object:
        return durable.current().heartbeat_details

    async def w() -> object:
        return await work()

    one.workflow = a_workflow(w)
    put(2, 1, "old")
    put(2, 3, "new")
    put(1, 10, "first attempt")

    assert value_of(run(backend, one.execute)) == "new"


@pytest.mark.anyio
@pytest.mark.parametrize("applied", [False, True], ids=["unsent", "applied"])
async def test_whatever_call_its_worker_dies_at(applied: bool) -> None:
    """The next owner's body goes on from exactly what was written before."""
    at = 0
    while True:
        at += 1
        seen.clear()
        async with world() as w:
            death = DiesAt(at, applied)

            assert await w.survive("r", flow, death, 8) == 8
            beats = {beat.epoch: beat for beat in (await w.facts("r")).beats}
            if len(seen) > 1:
                told = values.decode(beats[1].details) if 1 in beats else 0
                assert seen[1] == told, f"died at call {at}"
        if not death.died:
            break
    assert at > 20


@pytest.mark.anyio
async def test_a_killed_worker_costs_seconds_not_minutes() -> None:
    """40 seconds in, the body's process is killed: the next body begins where that one was."""
    async with world() as w:
        first = await w.process()
        await w.start("r", flow, 60)
        await virtual_seconds(42)
        first.kill()
        await w.process()

        assert await w.result("r") == 60
        assert seen[0] == 0
        assert 38 <= seen[1] <= 41


# -- how often -------------------------------------------------------------------------------------


@backends
def test_one_write_a_second(backend: str) -> None:
    """However often it is called; the first at once, the last need not be written."""

    @a_step
    async def busy() -> None:
        for i in range(1000):
            durable.current().heartbeat(i)
            await virtual_seconds(0.01)

    async def w() -> None:
        await busy()

    one = Run(a_workflow(w))

    async def main() -> Any:
        one.bucket = virtual_bucket()
        return await one.execute()

    value_of(run(backend, main))
    writes = [call for call in one.bucket.log if "/beats/" in call[1]]
    assert writes[0][0] == "create"
    assert {verb for verb, _ in writes[1:]} == {"replace"}
    assert 9 <= len(writes) <= 11


@backends
def test_without_heartbeats_no_write(backend: str) -> None:
    """They cost nothing where they are not used."""

    @a_step
    async def quiet() -> None: ...

    async def w() -> None:
        await quiet()

    one = Run(a_workflow(w))
    value_of(run(backend, one.execute))

    assert not [name for _, name in one.bucket.log if "/beats/" in name]


# -- silence ---------------------------------------------------------------------------------------


@backends
def test_silence_ends_an_attempt(backend: str) -> None:
    """One that says nothing for too long fails; one that keeps saying something may take long."""

    @a_step(heartbeat_timeout=5, retry=TWICE)
    async def work() -> int:
        me = durable.current()
        for _ in range(10):
            await virtual_seconds(4)
            me.heartbeat()
        if me.attempt == 1:
            await virtual_seconds(60)
        return me.attempt

    async def w() -> int:
        return int(await work())

    one = Run(a_workflow(w))

    assert value_of(run(backend, one.execute)) == 2
    (failed,) = one.attempts()
    assert failed.failure.message == "attempt 1 of step 'work' gave no heartbeat for 5 s"


@backends
def test_heartbeats_do_not_put_the_timeout_off(backend: str) -> None:
    """Both limits hold."""

    @a_step(heartbeat_timeout=5, timeout=12, attempts=1)
    async def work() -> None:
        while True:
            await virtual_seconds(4)
            durable.current().heartbeat()

    async def w() -> str:
        try:
            await work()
        except StepTimeout as e:
            return e.message
        return ""

    one = Run(a_workflow(w))

    assert value_of(run(backend, one.execute)).endswith("did not end within 12 s")


# -- in threads ------------------------------------------------------------------------------------


@backends
def test_from_a_sync_body(backend: str) -> None:
    """In a thread it is the same call; the next attempt gets the details."""

    @a_step(retry=TWICE)
    def work() -> object:
        me = durable.current()
        if me.attempt == 1:
            me.heartbeat([1, 2])
            raise ConnectionError
        return me.heartbeat_details

    def w() -> object:
        return work()

    assert value_of(run_with_threads(backend, Run(a_workflow(w)).execute)) == [1, 2]


@backends
def test_a_sync_body_that_beats_is_written(backend: str) -> None:
    """While it runs, from its thread."""
    written = threading.Event()

    @a_step
    def work() -> bool:
        durable.current().heartbeat("here")
        return written.wait(10)

    async def w() -> bool:
        return bool(await work.call())

    one = Run(a_workflow(w))

    def noticed(call: Any) -> None:
        if "/beats/" in call.name:
            written.set()

    one.faults = noticed

    assert value_of(run_with_threads(backend, one.execute)) is True


@backends
def test_a_sync_body_that_beats_may_take_long(backend: str) -> None:
    """From its thread, too, each heartbeat begins the time anew; only silence ends the attempt."""
    clock = ClockByHand()
    written = threading.Semaphore(0)

    @a_step(heartbeat_timeout=5, retry=TWICE)
    def work() -> object:
        me = durable.current()
        if me.attempt == 2:
            return me.heartbeat_details
        for beat in range(10):
            clock.move(4)
            me.heartbeat(beat)
            assert written.acquire(timeout=SECONDS_MAX)
        clock.move(6)
        until(lambda: me.cancelled, "nobody noticed the silence")
        return "too late"

    async def w() -> object:
        return await work.call()

    def noticed(call: Any) -> None:
        if "/beats/" in call.name:
            written.release()

    one = Run(a_workflow(w), faults=noticed)

    assert value_of(clock.run(one.execute, backend=backend)) == 9
    (failed,) = one.attempts()
    assert failed.failure.message == "attempt 1 of step 'work' gave no heartbeat for 5 s"


@backends
def test_a_thread_left_behind_is_ended_by_its_next_heartbeat(backend: str) -> None:
    """By no `Exception`, so that a body which catches those ends too."""
    ended = threading.Event()

    @a_step(timeout=0.05, attempts=1)
    def work() -> None:
        try:
            while True:
                try:
                    durable.current().heartbeat()
                    threading.Event().wait(0.005)
                except Exception:
                    pytest.fail("caught")
        finally:
            ended.set()

    async def w() -> str:
        try:
            await work.call()
        except TimeoutError:
            return "went on"
        return ""

    assert value_of(run_with_threads(backend, Run(a_workflow(w)).execute)) == "went on"
    assert ended.wait(10)


# -- misuse ----------------------------------------------------------------------------------------


@backends
def test_misuse(backend: str) -> None:
    """Outside a step, or with details that cannot be stored, it says so at once."""

    @a_step(attempts=1)
    async def work() -> None:
        durable.current().heartbeat(object())

    async def w() -> list[str]:
        said = []
        for call in (work, lambda: durable.current().heartbeat()):
            try:
                await call()
            except (InvalidArguments, NotInWorkflow) as e:
                said.append(type(e).__name__)
        return said

    one = Run(a_workflow(w))

    assert value_of(run(backend, one.execute)) == ["InvalidArguments", "NotInWorkflow"]
