"""Runs with a long record: what resuming them asks of the store."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import prepared
from durable import step, workflow
from durable.protocol import names
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import world

RECORDED = 1000
_bodies: list[int] = []


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


@step(name="long record double")
async def double(number: int) -> int:
    _bodies.append(number)
    return 2 * number


@workflow(name="long record")
async def count(steps: int) -> int:
    return sum([await double(number) for number in range(steps)])


@pytest.mark.anyio
async def test_a_thousand_steps_are_two_lists() -> None:
    """A thousand recorded steps and `start` come in two pages; nothing of them is read singly."""
    async with world() as w:
        steps = [
            prepared.outcome(w.store, double, n, 2 * (n - 1), n - 1) for n in range(1, RECORDED + 1)
        ]
        request = prepared.request(w.store, count, RECORDED + 1)
        await prepared.write_run(w.store, "long", request, steps)
        _bodies.clear()
        w.bucket.log.clear()
        await w.process()
        await w.until(lambda: names.result("long", request.instance) in w.there())
        folder = names.run_folder("long")
        asked = [verb for verb, name in w.bucket.log if name.startswith(folder)]

    assert _bodies == [RECORDED]
    assert asked.count("list") == 2
    assert "read" not in asked
