"""What an idle worker learns of others, and what that costs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

from durable import sleep
from durable.decorators import step, workflow
from durable.protocol import moments, names
from durable.protocol.leases import TTL_DEFAULT, Terms
from durable.runtime.rounds import HINTS_MAX, Periods
from durable.store import LOCAL_PACE, REMOTE_PACE
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

TERMS = Terms.of(TTL_DEFAULT)
SETTLED = 600.0  # seconds after which a worker does only what it does for ever
WATCHED = 600.0
CLASS_A = frozenset({"create", "replace", "list"})
begun: Counter[str] = Counter()


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    begun.clear()
    return virtual(request.param)


@step(name="rounds-test toil")
async def toil(name: str) -> str:
    begun[name] += 1
    if begun[name] == 1:
        await anyio.sleep_forever()
    return name


@workflow(name="rounds-test toiling")
async def toiling(name: str) -> str:
    return await toil(name)


@workflow(name="rounds-test napping")
async def napping(seconds: float) -> str:
    await sleep(seconds)
    return "rested"


async def class_a(w: World) -> Counter[str]:
    """What is asked for in ten minutes, by the folder that it is about."""
    before = len(w.bucket.log)
    await virtual_seconds(WATCHED)
    asked = [name for verb, name in w.bucket.log[before:] if verb in CLASS_A]
    return Counter(name.split("/")[0] for name in asked)


async def test_an_idle_worker_costs_about_four_calls_a_minute() -> None:
    """It shows itself once a minute, lists its queue or the leases with the hints by turns."""
    async with world() as w:
        await w.process()
        await virtual_seconds(SETTLED)

        asked = await class_a(w)
        assert 38 <= asked.total() <= 45
        assert 9 <= asked["presence"] <= 13  # tidied up now and then; periods have jitter
        assert 9 <= asked["live"] <= 11
        assert 17 <= asked[""] <= 20
        assert asked.keys() <= {"presence", "live", "", "attention", "bells"}


async def test_many_hints_are_listed_no_more_often() -> None:
    """Where they fill a page, the leases are listed alone, and the hints in slow periods."""
    async with world() as w:
        later = moments.stamp(w.store.now() + 30 * 86400)
        for number in range(HINTS_MAX):
            w.bucket.create(names.timer(later, f"r{number}", "i", "sleep.1"), b"{}", {}, True)
        await w.process()
        await virtual_seconds(SETTLED)

        asked = await class_a(w)
        assert asked.total() <= 56
        assert asked["workers"] >= 17
        assert 8 <= asked[""] <= 12


async def test_a_holder_that_dies_young_is_noticed_whenever_it_began() -> None:
    """No bell tells of it: by whichever list comes next it is known before its lease runs out."""
    async with world() as w:
        survivor = await w.process()
        for number in range(12):
            await virtual_seconds(120 + 5.5 * number)
            run = f"r{number}"
            holder = await w.process(queues=(), schedules=False)
            assert await holder.worker.start_here(run, w.request(toiling, run))
            await w.until(lambda run=run: begun[run] == 1)
            renewed = w.bucket.read(names.worker(holder.worker.id))
            assert renewed is not None
            holder.kill()
            await w.until(lambda run=run: begun[run] == 2)

            assert w.store.now() - renewed.updated <= TERMS.ttl + TERMS.margin + 2
            assert await w.result(run) == run
        assert survivor.worker.runners == {}


async def test_a_run_that_a_dead_worker_parked_is_woken_on_time() -> None:
    """The hint is learnt within a minute, and its time remembered."""
    async with world() as w:
        await w.process(code={})
        parker = await w.process(queues=(), schedules=False, always_park=True)
        await parker.worker.start_here("r", w.request(napping, 100.0))
        await w.until(lambda: names.marker("default", "r") not in w.there())
        parker.kill()
        await w.process()
        due = w.store.now() + 100.0

        assert await w.result("r") == "rested"
        assert w.store.now() <= due + 3


def test_the_periods_follow_from_pace_and_lease() -> None:
    """Holders show in one list within ttl + margin; the queues take their turn in a minute."""
    assert Periods.of(REMOTE_PACE, TERMS) == (22.0, 66.0)
    assert Periods.of(REMOTE_PACE, Terms.of(12.0)) == (14.0, 56.0)
    assert Periods.of(REMOTE_PACE, Terms.of(120.0)) == (60.0, 60.0)
    assert Periods.of(LOCAL_PACE, TERMS) == (5.0, 5.0)
