"""Public bug reports about attempts of steps, as trials of ours. A row's id names the report."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import durable
from durable import Retry, step, workflow
from durable.client import reading
from durable.system import always_park
from tests.runtime.world import DiesAt, world
from tests.virtual_time import virtual_seconds

pytestmark = [pytest.mark.anyio, pytest.mark.requires("trio")]

TTL = 20.0  # seconds, of a worker's lease

bodies: list[tuple[int, int]] = []  # epoch and attempt


@pytest.fixture
def anyio_backend() -> Any:
    from trio.testing import MockClock

    bodies.clear()
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def began() -> int:
    bodies.append((durable.current().epoch, durable.current().attempt))
    return durable.current().attempt


@step(name="bug-three attempts", retry=Retry(attempts=3, first=5, factor=1, jitter=False))
async def three_attempts() -> None:
    attempt = began()
    await virtual_seconds(2)
    durable.publish("item", attempt)
    raise ConnectionError(f"attempt {attempt}")


@workflow(name="bug-B97")
async def tries() -> str:
    try:
        await three_attempts()
    except ConnectionError as e:
        return str(e)
    return ""


@pytest.mark.parametrize("applied", [False, True], ids=["unsent", "applied"])
async def test_b97_attempts_are_counted_across_crashes(applied: bool) -> None:
    """B97: wherever a worker dies, in a body or between two, the third failure is the last.

    A body starts at most as often as it has attempts, and once more for each takeover.
    """
    at = 0
    while True:
        at += 1
        bodies.clear()
        async with world() as w:
            death = DiesAt(at, applied)

            assert await w.survive("r", tries, death) == "attempt 3", f"died at call {at}"
            facts = await w.facts("r")
            assert [a.attempt for a in facts.attempts] == [1, 2]
            assert len(bodies) <= 3 + len(facts.epochs)
            assert max(Counter(bodies).values()) == 1
        if not death.died:
            break
    assert at > 12


async def test_b91_an_end_between_two_attempts_records_nothing() -> None:
    """B91: a worker that is told to end in a back-off leaves the failed attempt and no more."""
    async with world() as w:
        first = await w.process()
        await w.start("r", tries)
        await w.until(lambda: any("/attempts/" in name for name in w.there()))
        first.worker.stop()
        await first.gone.wait()

        facts = await w.facts("r")
        assert [a.attempt for a in facts.attempts] == [1]
        assert facts.steps == []
        assert facts.result is None
        await w.process()
        assert await w.result("r") == "attempt 3"
        assert [attempt for _, attempt in bodies] == [1, 2, 3]


@step(name="bug-ten leases", timeout="1h")
async def ten_leases() -> str:
    began()
    await virtual_seconds(10 * TTL)
    return "done"


@workflow(name="bug-B95")
async def long_work() -> str:
    return await ten_leases()


async def test_b95_work_longer_than_a_lease_runs_once() -> None:
    """B95: a body of ten times the ttl runs once, while its lease is renewed, beside a rival."""
    async with world() as w:
        await w.process()
        await w.process()
        await w.start("r", long_work)

        assert await w.result("r") == "done"
        assert bodies == [(1, 1)]


@workflow(name="bug-B95-delayed")
async def delayed() -> str:
    await durable.sleep(10 * TTL)
    began()
    return "done"


async def test_b95_a_start_delayed_for_longer_than_a_lease_holds_none() -> None:
    """B95: while it waits for ten times the ttl nobody holds it, and its worker has no lease."""
    async with world() as w:
        await w.process()
        await w.process()
        await w.start("r", delayed)
        await w.until(lambda: bool(w.hints("timers/")) and not w.hints("live/"))
        await virtual_seconds(5 * TTL)

        assert not w.hints("live/")
        assert not w.hints("workers/")
        assert bodies == []
        assert await w.result("r") == "done"
        assert len(bodies) == 1


async def test_b101_what_a_retried_step_publishes_is_there_once() -> None:
    """B101: of three attempts that each publish, the value of the last is what is left."""
    async with world() as w:
        await w.process()
        start = await w.start("r", tries)
        await w.result("r")

        found = await reading.published(w.store, "r", start.instance)
        assert {name: bytes(record.value) for name, record in found.items()} == {"item": b"3"}
        # One object for each owner; where every wait parks, each attempt has an owner of its own.
        owners = 3 if always_park() else 1
        assert len(w.hints(f"runs/r/{start.instance}/state/")) == owners
