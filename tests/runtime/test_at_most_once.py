"""Steps whose bodies never begin twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import durable
from durable.decorators import step, workflow
from durable.errors import OutcomeUnknown
from durable.protocol import names, records
from durable.protocol.records import Begin
from durable.protocol.retries import Retry
from durable.runtime.closing import LateRecord
from durable.store.memory import Call
from tests.runtime.clocks import BACKENDS, run, run_with_threads, virtual
from tests.runtime.runs import INSTANCE, RUN, Run, a_step, a_workflow, error_of, value_of
from tests.runtime.world import DiesAt, World, world
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)

bodies: Counter[tuple[str, int]] = Counter()  # by idempotency key and attempt


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    bodies.clear()
    return virtual(request.param)


def count() -> int:
    me = durable.current()
    bodies[me.idempotency_key, me.attempt] += 1
    return me.attempt


@step(name="amo-test pay", at_most_once=True, retry=Retry(attempts=2, first=1))
async def pay() -> str:
    if count() == 1:
        raise ConnectionError("declined")
    await virtual_seconds(1)
    return "paid"


@step(name="amo-test note")
async def note(what: str) -> str:
    return what


@workflow(name="amo-test shop")
async def shop() -> str:
    await note("before")
    try:
        paid = await pay()
    except OutcomeUnknown as e:
        paid = f"unknown, attempt {e.message.split()[1]}"
    return await note(paid)


# -- without a crash ------------------------------------------------------------------------------


@backends
def test_cost(backend: str) -> None:
    """Two creates, the claim before the body and the outcome after it; no read."""

    @a_step(at_most_once=True)
    async def once() -> str:
        assert one.bucket.log[-1] == ("create", names.begin(RUN, INSTANCE, "once.1", 1))
        return "done"

    async def w() -> str:
        return str(await once())

    one = Run(a_workflow(w))

    async def main() -> Any:
        await one._prepare(lambda: True, False, None)
        one.calls()
        return await one.execute()

    assert value_of(run(backend, main)) == "done"
    calls = one.calls()
    assert calls.pop("list") == 1  # the owner's own look
    assert calls == {"create": 2}


@backends
def test_one_attempt_by_default(backend: str) -> None:
    """An error is final unless more attempts are asked for: each is one more body."""

    @a_step(at_most_once=True)
    async def fail() -> None:
        raise ConnectionError

    async def w(step: Any) -> None:
        await step()

    one, two = Run(a_workflow(w), (fail,)), Run(a_workflow(w), (fail.options(attempts=2),))

    assert isinstance(error_of(run(backend, one.execute)), ConnectionError)
    assert isinstance(error_of(run(backend, two.execute)), ConnectionError)
    assert one.begun == ["fail.1"]
    assert two.begun == ["fail.1", "fail.1"]


@backends
def test_sync_bodies_too(backend: str) -> None:
    """A sync step of a sync workflow is claimed alike."""

    @a_step(at_most_once=True)
    def once() -> str:
        return "done"

    def w() -> str:
        return str(once())

    one = Run(a_workflow(w))

    assert value_of(run_with_threads(backend, one.execute)) == "done"
    assert names.begin(RUN, INSTANCE, "once.1", 1) in {name for _, name in one.bucket.log}


# -- after one ------------------------------------------------------------------------------------


def begun(attempt: int, nonce: str = "theirs") -> Begin:
    return Begin(path="once.1", attempt=attempt, nonce=nonce, time=0.0, epoch=1)


def put(one: Run, begin: Begin) -> None:
    one._put(names.begin(RUN, INSTANCE, begin.path, begin.attempt), begin, begin.nonce)


@backends
def test_a_body_that_began_and_left_no_outcome_is_unknown(backend: str) -> None:
    """It is not repeated: the workflow gets an error, recorded, which it can catch."""

    @a_step(at_most_once=True)
    async def once() -> str:
        return "done"

    async def w() -> str:
        try:
            return str(await once())
        except OutcomeUnknown as e:
            return e.message

    one = Run(a_workflow(w))
    put(one, begun(1))

    said = value_of(run(backend, one.execute))

    assert said.startswith("attempt 1 of step 'once' began and its outcome was not recorded")
    assert one.begun == []
    assert one.steps()["once.1"].outcome == "error"
    assert value_of(run(backend, one.execute)) == said


@backends
def test_a_claim_that_landed_late_is_not_ours(backend: str) -> None:
    """The claim is refused, so the body does not run; the next list says the rest."""

    @a_step(at_most_once=True)
    async def once() -> str:
        return "done"

    async def w() -> str:
        return str(await once())

    one = Run(a_workflow(w))

    def lands_now(call: Call) -> None:
        if call.verb == "create" and call.nth == 1 and "/starts/" in call.name:
            body = records.encode(begun(1))
            one.bucket.create(call.name, body, {"nonce": "theirs"}, True)

    one.faults = lands_now

    assert run(backend, one.execute) == LateRecord("once.1")
    assert one.begun == []
    assert isinstance(error_of(run(backend, one.execute)), OutcomeUnknown)
    assert one.begun == []


@backends
def test_a_recorded_outcome_goes_before_its_claim(backend: str) -> None:
    """What is known is handed over; an attempt known to have failed may be followed by another."""

    @a_step(at_most_once=True, retry=Retry(attempts=2, first=0))
    async def once() -> str:
        if durable.current().attempt == 1:
            raise ConnectionError
        return "done"

    async def w() -> str:
        return str(await once())

    one = Run(a_workflow(w))
    assert value_of(run(backend, one.execute)) == "done"
    assert value_of(run(backend, one.execute)) == "done"
    assert one.begun == []

    one.forget("once.1")
    assert isinstance(error_of(run(backend, one.execute)), OutcomeUnknown)

    two = Run(a_workflow(w))
    put(two, begun(1))
    for attempt in one.attempts():
        two.put_attempt(attempt)
    assert value_of(run(backend, two.execute)) == "done"


@pytest.mark.anyio
@pytest.mark.parametrize("applied", [False, True], ids=["unsent", "applied"])
async def test_whatever_call_its_worker_dies_at(applied: bool) -> None:
    """Each attempt has at most one body; the run ends, knowing or knowing that it does not."""
    outcomes = set()
    at = 0
    while True:
        at += 1
        bodies.clear()
        async with world() as w:
            death = DiesAt(at, applied)
            outcomes.add(await w.survive("r", shop, death))

            assert max(bodies.values(), default=0) <= 1, f"died at call {at}"
        if not death.died:
            break

    assert at > 12
    assert outcomes == {"paid", "unknown, attempt 1", "unknown, attempt 2"}


def epochs(w: World) -> list[str]:
    return [name for name in w.there() if "/epochs/" in name]


@pytest.mark.anyio
async def test_a_paused_owner_and_its_successor() -> None:
    """The first owner wakes in the middle of its body: what it has done stays unknown."""
    async with world() as w:
        first = await w.process()
        await w.start("r", shop)
        await w.until(lambda: len(bodies) == 2)
        first.pause()
        before = epochs(w)
        await w.process()
        await w.until(lambda: epochs(w) != before)
        first.wake()

        assert await w.result("r") == "unknown, attempt 2"
        assert set(bodies.values()) == {1}
