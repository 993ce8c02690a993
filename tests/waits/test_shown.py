"""Which calls of a run are shown as open: those that it waits for, and no others."""

from __future__ import annotations

import contextlib

import pytest

from durable import gather, map, select, sleep, timeout, wait_event
from durable.client import Handle
from durable.client.repair import Repair
from durable.protocol.retries import Retry
from durable.store import Store
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import a_step, a_workflow
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds
from tests.waits.long import parked, stop
from tests.waits.test_events import _send

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


class _Repair(Repair):
    def __init__(self, store: Store) -> None:
        self.store = store


OPEN = {"waiting", "retrying"}


@a_step(retry=Retry(attempts=5, first="1h", max="1h", factor=1))
async def _stubborn() -> None:
    raise ConnectionError


@a_step(attempts=1)
async def _fails() -> None:
    raise LookupError("nothing there")


async def _one(number: int) -> object:
    return await (sleep(1) if number == 2 else wait_event(f"e{number}"))


@a_workflow
async def _losers(decision: str) -> str:
    match decision:
        case "select":
            await select(ok=wait_event("ok"), late=sleep(5))
        case "helpers":
            await select(first=_one(1), second=_one(2))
        case "enough":
            await map(_one, range(4), enough=1)
        case "failure":
            with contextlib.suppress(LookupError):
                await gather(wait_event("ok"), _stubborn(), _one(1), _after_a_while())
        case "in time":
            async with timeout("1h"):
                await sleep(1)
        case "too late":
            with contextlib.suppress(TimeoutError):
                async with timeout("1m"):
                    await gather(wait_event("ok"), _stubborn())
    await wait_event("go")
    return "gone"


async def _after_a_while() -> None:
    await sleep(20)
    await _fails()


async def _open(w: World) -> list[tuple[str, str]]:
    handle = Handle[object](w.store, "r", (await w.facts("r")).start)
    return [(s.path, s.outcome) for s in await handle.steps() if s.outcome in OPEN]


@pytest.mark.parametrize(
    "decision", ["select", "helpers", "enough", "failure", "in time", "too late"]
)
def test_what_a_decision_closed_is_not_shown_as_open(backend: str, decision: str) -> None:
    """The losers' claims stay in the record; what is shown is what the run waits for."""

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", _losers, decision)
            await w.until(lambda: "event-go" in " ".join(w.there()))
            await parked(w)
            claims = {wait.path for wait in (await w.facts("r")).waits}
            assert len(claims) > 1 or decision == "failure"
            assert await _open(w) == [("event-go.1", "waiting")]

            await stop(process)
            await w.process()
            await _send(w, "go")
            assert await w.result("r") == "gone"

    run(backend, main)


def test_what_is_open_is_shown_while_it_is(backend: str) -> None:
    """Before the decision all that competes is shown, with the attempts of a step that failed."""

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", _losers, "too late")
            await parked(w)
            assert sorted(await _open(w)) == [
                ("timeout.1", "waiting"),
                ("timeout.1/_stubborn.1", "retrying"),
                ("timeout.1/event-ok.1", "waiting"),
            ]

    run(backend, main)


def test_a_retry_shows_what_it_waits_for_again(backend: str) -> None:
    """What a decision closed in the old instance is open in the new one until decided again."""
    broken = True

    @a_step(attempts=1)
    async def fragile() -> None:
        if broken:
            raise LookupError("nothing there")

    async def in_a_while() -> None:
        await sleep(2)
        await fragile()

    @a_workflow
    async def flow() -> str:
        await gather(wait_event("ok"), in_a_while())
        return "done"

    async def main() -> None:
        nonlocal broken
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            assert await w.result("r") == "nothing there"
            broken = False
            await _Repair(w.store).retry("r")
            await virtual_seconds(60)
            await parked(w)
            assert [path for path, _ in await _open(w)] == ["event-ok.1"]

            await _send(w, "ok")
            assert await w.result("r") == "done"

    run(backend, main)
