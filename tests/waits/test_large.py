"""Many branches, deep children: bounded in memory, read by lists."""

from __future__ import annotations

from collections import Counter

import pytest

from durable import map
from tests.runtime import clocks
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import Run, a_step, a_workflow, value_of
from tests.runtime.world import world
from tests.waits.test_children import _deep

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

ITEMS = 2_500
TURNS_PER_LEVEL = 1_000  # of the event loop: many times what a level takes


@a_step
async def _double(number: int) -> int:
    return 2 * number


@a_workflow
async def _doubled(count: int) -> int:
    return sum(await map(_double, range(count)))


def test_a_large_map_is_resumed_by_lists(backend: str) -> None:
    """A record of 2,500 calls is read by three lists and one get, and no body begins again."""

    async def main() -> None:
        first = Run(_doubled, args=(ITEMS,))
        assert value_of(await first.execute()) == ITEMS * (ITEMS - 1)
        first.calls()

        assert value_of(await first.execute()) == ITEMS * (ITEMS - 1)
        calls = first.calls()
        assert (calls["list"], calls.get("read", 0)) == (3, 0)
        assert not first.begun

    run(backend, main)


def test_branches_that_are_over_leave_nothing(backend: str) -> None:
    """However many items a map has, at most `limit` branches are open at once."""
    open_at_once: list[int] = []
    now_open = 0

    @a_step
    async def count(number: int) -> int:
        nonlocal now_open
        now_open += 1
        open_at_once.append(now_open)
        now_open -= 1
        return number

    @a_workflow
    async def flow() -> int:
        return len(await map(count, iter(range(500)), limit=7))

    async def main() -> None:
        assert value_of(await Run(flow).execute()) == 500
        assert max(open_at_once) <= 7

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
