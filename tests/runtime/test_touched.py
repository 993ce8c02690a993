"""How a live holder learns that somebody woke its run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from durable.protocol import names, records
from durable.runtime import markers
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import a_step, a_workflow, recorded
from tests.runtime.world import Process, World, world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


class _Looks:
    """Counts the looks of a run's execution."""

    def __init__(self, process: Process, run: str) -> None:
        self.count = 0
        execution = process.worker.runners[run].execution
        assert execution is not None
        self.execution = execution
        execution.looking.at(self._look)

    async def _look(self) -> None:
        self.count += 1


async def _holding(w: World) -> tuple[Process, _Looks]:
    """A worker in the middle of a long step of run `r`."""

    @a_step
    async def long() -> None:
        await virtual_seconds(1000)

    @a_workflow
    async def flow() -> str:
        await long()
        return "done"

    process = await w.process()
    await w.start("r", flow)
    await w.until(lambda: bool(process.worker.runners))
    await w.until(lambda: process.worker.runners["r"].execution is not None)
    return process, _Looks(process, "r")


def test_touch_makes_the_holder_look_once(backend: str) -> None:
    """A wake rings the holder's bell; the holder compares generations and looks once."""

    async def main() -> None:
        async with world() as w:
            _, looks = await _holding(w)
            start = (await w.facts("r")).start
            await markers.wake(w.store, "r", start, nonce=w.system.token)

            await w.until(lambda: looks.count > 0)
            assert await w.result("r") == "done"
            assert looks.count == 1
            assert looks.execution.looking.up_to_date

    run(backend, main)


def test_lost_bell_costs_one_slow_period(backend: str) -> None:
    """The slow list compares the generations of the worker's own markers too."""

    async def main() -> None:
        async with world() as w:
            process, looks = await _holding(w)
            stored = await w.store.read(names.marker("default", "r"))
            assert stored is not None
            assert stored.body is not None
            await w.store.replace(
                stored.name, stored.generation, stored.body,
                nonce="touch", earlier=stored.meta["nonce"],
                meta={k: v for k, v in stored.meta.items() if k != "nonce"},
            )  # fmt: skip

            await w.until(lambda: looks.count > 0)
            assert process.worker.runners["r"].execution is looks.execution

    run(backend, main)


def test_untouched_marker_is_no_news(backend: str) -> None:
    """A bell alone, or a list that shows the known generation, makes nobody look."""

    async def main() -> None:
        async with world() as w:
            process, looks = await _holding(w)
            await markers.ring(w.store, names.worker_bell(process.worker.id), "nonce")

            assert await w.result("r") == "done"
            assert looks.count == 0

    run(backend, main)


def test_touch_while_a_run_is_parked_for_attention(backend: str) -> None:
    """A wake between the end of the code and the marker's delete is not lost."""

    @a_step
    async def asked() -> None:
        """Another step is recorded in its place."""

    @a_workflow
    async def flow() -> None:
        await asked()

    async def main() -> None:
        async with world() as w:
            start = await w.start("r", flow)
            other = msgspec.structs.replace(recorded("asked.1", 1), name="other")
            name = names.step("r", start.instance, "asked.1")
            await w.store.create(name, records.encode(other), nonce=other.nonce)
            process = await w.process()
            hints: list[str] = []

            def touch(call: Any) -> None:
                # The hint is about to be made: the code has ended, the marker is still there.
                if call.verb == "create" and call.name.startswith("attention/"):
                    hints.append(call.name)
                    stored = w.bucket.read(names.marker("default", "r"))
                    if stored is not None and len(hints) == 1:
                        touched = w.bucket.put(stored.name, stored.body or b"", stored.meta)
                        process.worker._holdings.saw("r", touched)

            process.backend.faults = touch  # type: ignore[attr-defined]  # in memory it has
            await w.attention("r")
            await virtual_seconds(30)

            assert len((await w.facts("r")).epochs) == 2  # it was looked at again
            assert names.marker("default", "r") not in w.there()

    run(backend, main)
