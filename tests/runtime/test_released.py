"""Runs that somebody takes from a worker that is alive."""

from __future__ import annotations

import pytest

from durable.client.purging import purge
from durable.client.repair import Repair
from durable.protocol import names
from durable.store import Store
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import a_step, a_workflow
from tests.runtime.world import world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

bodies: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    bodies.clear()


@a_step
async def _long(what: str) -> str:
    bodies.append(("begins", what))
    await virtual_seconds(100)
    bodies.append(("ends", what))
    return what


@a_workflow
async def _two() -> list[str]:
    return [await _long("a"), await _long("b")]


class _Repair(Repair):
    def __init__(self, store: Store) -> None:
        self.store = store


def test_a_live_holder_lets_a_released_run_be(backend: str) -> None:
    """Its bodies are stopped, and of what comes after it does nothing: it is another's."""

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", _two)
            await w.until(lambda: bool(bodies))

            assert await _Repair(w.store).release("r", force=True)

            assert await w.result("r") == ["a", "b"]
            assert bodies == [
                ("begins", "a"), ("begins", "a"), ("ends", "a"), ("begins", "b"), ("ends", "b"),
            ]  # fmt: skip

    run(backend, main)


def test_a_live_holder_lets_a_purged_run_be(backend: str) -> None:
    """It begins nothing more, and nothing of the run comes back."""

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", _two)
            await w.until(lambda: bool(bodies))

            await purge(w.store, "r", force=True)

            await virtual_seconds(300)
            assert bodies == [("begins", "a")]
            assert w.hints("runs/r/") == [names.start("r")]
            assert not w.hints("history/")
            assert not w.hints("live/")

    run(backend, main)
