"""A program of all kinds of waits, whose worker dies at each write in turn."""

from __future__ import annotations

from typing import Any

import pytest

from durable import gather, map, select, sleep, timeout, wait_event
from durable.client import Handle
from durable.errors import NotFound, StoreError
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import a_step, a_workflow
from tests.runtime.world import Process, World, world
from tests.virtual_time import virtual_seconds
from tests.waits.long import concerns

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

seen: list[list[Any]] = []  # what each execution of the program saw, in its order


@a_step
async def _work(name: str) -> str:
    await virtual_seconds(1)
    return name


@a_workflow
async def _child(name: str) -> str:
    await sleep(2)
    return f"child {name}"


@a_workflow
async def _program() -> list[Any]:
    mine: list[Any] = []
    seen.append(mine)

    async def branch(seconds: float) -> float:
        await sleep(seconds)
        mine.append(("branch", seconds, await _work(str(seconds))))
        return seconds

    mine.append(await select(event=wait_event("first", str), late=sleep(4)))
    mine.append(await map(branch, [3.0, 1.0, 2.0], enough=2))
    try:
        async with timeout(5):
            mine.append(await _work("inside"))
            mine.append(await wait_event("second", str))
    except TimeoutError:
        mine.append("timed out")
    child = await _child.start("one")
    mine.append(await gather(child.result(), _work("beside"), sleep(1)))
    mine.append(await wait_event("last", str, timeout=30))
    return mine


class _Dying:
    """The worker dies at the n-th write for the run; another comes some time later."""

    def __init__(self, w: World, at: int) -> None:
        self.written = 0
        self._w = w
        self._at = at

    async def first(self) -> Process:
        process = await self._w.process()

        def dies(call: Any) -> None:
            if call.verb in {"create", "replace"} and concerns(call.name):
                self.written += 1
                if self.written == self._at:
                    process.kill()

        process.backend.faults = dies  # type: ignore[attr-defined]  # in memory it has
        return process


async def _send(w: World, name: str, value: str) -> None:
    try:
        start = (await w.facts("r")).start
        await Handle[Any](w.store, "r", start).send(name, value, key=name)
    except (NotFound, StoreError):
        pass


async def _scenario(at: int, first_at: float) -> bool:
    seen.clear()
    async with world() as w:
        dying = _Dying(w, at)
        await dying.first()
        await w.start("r", _program)
        await virtual_seconds(first_at)
        await _send(w, "first", "one")
        await virtual_seconds(8)
        await _send(w, "second", "two")
        await virtual_seconds(20)
        await w.process()
        await virtual_seconds(5)
        await _send(w, "last", "three")
        result = await w.result("r")

        assert len(result) >= 6, result
        _check_each_is_a_prefix([[_plain(x) for x in mine] for mine in seen], result)
        events = [take.event for take in (await w.facts("r")).takes if take.event]
        assert len(events) == len(set(events)) <= 3
        await w.until(lambda: not [n for n in w.there() if n.startswith(("timers/", "live/"))])
        return dying.written >= at


def _plain(value: Any) -> Any:
    return [_plain(x) for x in value] if isinstance(value, list | tuple) else value


def _check_each_is_a_prefix(executions: list[list[Any]], result: Any) -> None:
    """S9: whatever any execution saw is what every later one sees, in the same order."""
    whole = [_plain(x) for x in result]
    for mine in executions:
        assert mine == whole[: len(mine)], (mine, whole)


@pytest.mark.parametrize("first_at", [2.0, 3.9])
def test_every_execution_sees_the_same(backend: str, first_at: float) -> None:
    """B40, B41, B43, B76, B80: values, winners and their order never differ between owners."""

    async def main() -> None:
        at = 1
        while await _scenario(at, first_at):
            at += 1
        assert at > 20

    run(backend, main)
