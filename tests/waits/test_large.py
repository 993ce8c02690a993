"""Many branches, deep children: bounded in memory, read by lists."""

from __future__ import annotations

import gc
import math
from collections import Counter

import pytest

from durable import map
from durable.runtime.calls import StepCall
from durable.runtime.scopes import Scope
from tests.runtime import clocks
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import Run, a_step, a_workflow, value_of
from tests.runtime.world import world
from tests.virtual_time import virtual_seconds
from tests.waits.test_children import _deep

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

ITEMS = {"asyncio": 20_000, "trio": 2_500}  # so many on one loop are seconds enough
LIMIT = 50
TURNS_PER_LEVEL = 1_000  # of the event loop: many times what a level takes
TURNS_PER_ITEM = 100  # as above


@a_step
async def _double(number: int) -> int:
    if number % 1000 == 0:
        seen.append(_there())
    return 2 * number


@a_workflow
async def _doubled(count: int) -> int:
    return sum(await map(_double, iter(range(count)), limit=LIMIT))


seen: list[int] = []


def _there() -> int:
    """How many calls and scopes the process holds in memory."""
    return sum(isinstance(each, StepCall | Scope) for each in gc.get_objects())


def test_a_large_map_holds_what_is_open_and_is_resumed_by_lists(
    backend: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20,000 items 50 are in memory at once; 21 lists read the record of all."""
    if mode != "normal":
        pytest.skip("nothing waits")
    monkeypatch.setattr(clocks, "TURNS_MAX", TURNS_PER_ITEM * ITEMS[backend])
    items, before = ITEMS[backend], _there()
    seen.clear()

    async def main() -> None:
        first = Run(_doubled, args=(items,))
        assert value_of(await first.execute()) == items * (items - 1)
        assert max(seen) - before <= 3 * LIMIT
        first.calls()

        assert value_of(await first.execute()) == items * (items - 1)
        calls = first.calls()
        assert (calls["list"], calls.get("read", 0)) == (math.ceil((items + 1) / 1000), 0)
        assert not first.begun

    run(backend, main)


def test_so_many_at_once_and_no_more(backend: str) -> None:
    """As many branches are open as `limit` says, from the first item to the last."""
    open_at_once: list[int] = []
    now_open = 0

    @a_step
    async def count(number: int) -> int:
        nonlocal now_open
        now_open += 1
        open_at_once.append(now_open)
        await virtual_seconds(1 + number / 100)  # no two end at once
        now_open -= 1
        return number

    @a_workflow
    async def flow() -> list[int]:
        return await map(count, iter(range(100)), limit=7)

    async def main() -> None:
        assert value_of(await Run(flow).execute()) == [*range(100)]
        assert open_at_once[:7] == [1, 2, 3, 4, 5, 6, 7]
        assert set(open_at_once[7:]) == {7}

    run(backend, main)


@pytest.mark.parametrize("depth", [100, 1_000])
def test_a_deep_tower_of_children(
    backend: str, mode: str, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand runs that wait for one another, with one place for all; none costs more so."""
    if depth > 100 and (backend, mode) != ("asyncio", "normal"):
        pytest.skip("a thousand take seconds, and a worker without room parks all waits anyway")
    monkeypatch.setattr(clocks, "TURNS_MAX", TURNS_PER_LEVEL * depth)
    calls: Counter[str] = Counter()

    async def main() -> None:
        async with world() as w:
            await w.process(concurrency=1)
            await w.start("r", _deep, depth)
            assert await w.result("r") == depth
            calls.update(verb for verb, _ in w.bucket.log)

    run(backend, main)
    assert calls["create"] <= 12 * depth
    assert calls["list"] <= 10 * depth
