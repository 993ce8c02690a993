"""Events: kept from the moment they are sent, each for one wait, decided once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from durable import gather, wait_event
from durable.client import Handle, sending
from durable.errors import InvalidArguments, InvalidEvent, WaitTimeout
from durable.protocol import names
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import a_step, a_workflow
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds
from tests.waits.long import DAY, concerns, parked, pass_time, verbs

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

TAKEOVER = 20 + 2 + 2  # seconds: ttl, margin, and a look


@dataclass
class Approval:
    """What a manager says."""

    by: str
    limit: int


async def _handle(w: World, run: str = "r", workflow: Any = None) -> Handle[Any]:
    start = (await w.facts(run)).start
    return Handle(w.store, run, start, workflow and workflow.definition)


async def _send(w: World, name: str, value: object = None, key: str | None = None) -> str:
    return await (await _handle(w)).send(name, value, key=key)


async def _taken(w: World) -> list[tuple[int, str, str, str]]:
    takes = sorted((await w.facts("r")).takes, key=lambda take: take.k)
    return [(take.k, take.path, take.outcome, take.event) for take in takes]


def test_event_reaches_a_parked_run(backend: str) -> None:
    """A parked run is woken by an event, whose value its wait returns."""

    @a_workflow
    async def flow() -> str:
        said: Approval = await wait_event("approval", Approval)
        return f"{said.by} {said.limit}"

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            (hint,) = await parked(w)
            assert hint.startswith("timers/never/r/")

            assert await _send(w, "approval", {"by": "ann", "limit": 7}, "k1") == "accepted"
            assert await w.result("r") == "ann 7"
            assert await _taken(w) == [(1, "event-approval.1", "value", "k1")]
            await w.until(lambda: not [n for n in w.there() if n.startswith(("timers/", "live/"))])

    run(backend, main)


def test_cost_of_an_event_wait(backend: str) -> None:
    """Eight class A operations: wait, hint; event, marker, bell; take, epoch, `takes/1`."""

    @a_workflow
    async def flow() -> None:
        await wait_event("go")

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await w.until(lambda: any("waits/" in name for name in w.there()))
            before = w.bucket.log.index(
                ("create", names.wait("r", (await w.facts("r")).start.instance, "event-go.1"))
            )
            del w.bucket.log[:before]
            await parked(w)
            await _send(w, "go")
            await w.result("r")

            waiting = ["create waits", "create timers"]
            sending = ["create events", "create live", "create bells"]
            taking = ["replace live", "create epochs", "create takes"]
            assert verbs(w) == [
                *waiting, *sending, *taking, "create result", "create history"
            ]  # fmt: skip

    run(backend, main)


def test_events_are_kept_and_come_in_order(backend: str) -> None:
    """B76: sent early, in between and late, they reach one wait each, in the order of sending."""

    @a_step
    async def pause() -> None:
        await virtual_seconds(20)

    @a_workflow
    async def flow() -> list[str]:
        await pause()
        first = await wait_event("word", str)
        await pause()
        return [first, await wait_event("word", str), await wait_event("word", str)]

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await _send(w, "word", "one", "z")
            await virtual_seconds(1)
            await _send(w, "word", "two", "a")
            await virtual_seconds(60)
            assert not (await w.facts("r")).result  # the third wait got nothing twice
            await _send(w, "word", "three")

            assert await w.result("r") == ["one", "two", "three"]

    run(backend, main)


def test_same_key_is_one_event(backend: str) -> None:
    """A duplicate is dropped by its key: the second wait does not get it."""

    @a_workflow
    async def flow() -> list[str]:
        first = await wait_event("word", str)
        try:
            second = await wait_event("word", str, timeout=5)
        except WaitTimeout:
            second = "nothing"
        return [first, second]

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            assert await _send(w, "word", "one", "k") == "accepted"
            assert await _send(w, "word", "one", "k") == "accepted"

            assert await w.result("r") == ["one", "nothing"]

    run(backend, main)


@pytest.mark.parametrize("sent_after", [50.0, 59.0, 59.9, 61.0])
def test_event_or_deadline_is_decided_once(backend: str, sent_after: float) -> None:
    """B43: who came first stays so for ever, whatever the clock says when the run is resumed."""

    @a_step
    async def long() -> None:
        await virtual_seconds(30)

    @a_workflow
    async def flow() -> str:
        try:
            seen = await wait_event("word", str, timeout=60)
        except TimeoutError:
            seen = "too late"
        await long()
        return str(seen)

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await virtual_seconds(sent_after)
            await _send(w, "word", "in time")
            await w.until(lambda: any("/takes/" in name for name in w.there()))
            process.kill()
            ((_, _, _, event),) = await _taken(w)
            first = "in time" if event else "too late"
            await virtual_seconds(100)
            await w.process()

            assert await w.result("r") == first
            if sent_after != 59.9:  # then it is a race, and either may come first
                assert first == ("in time" if sent_after < 60 else "too late")
            assert len(await _taken(w)) == 1

    run(backend, main)


def test_deadline_of_a_parked_wait(backend: str) -> None:
    """B74: it passes at its stored moment, however long nobody was there."""

    @a_workflow
    async def flow() -> str:
        try:
            await wait_event("word", timeout="2d")
        except WaitTimeout as e:
            return str(e)
        return "came"

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await parked(w)
            await pass_time(w, process, 3 * DAY)

            assert "waited for event 'word' until 2023-11-16T22:13:" in await w.result("r")

    run(backend, main, for_ever=10 * DAY)


def test_crashes_do_not_put_a_waits_deadline_off(backend: str) -> None:
    """B74: it passes 60 s after the wait began, however often the wait's worker dies meanwhile."""

    @a_step
    async def long() -> None:
        await virtual_seconds(100)  # so that the run is not parked

    async def waits() -> str:
        try:
            await wait_event("word", timeout=60)
        except WaitTimeout:
            return "too late"
        return ""

    @a_workflow
    async def flow() -> str:
        return str((await gather(waits(), long()))[0])

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await w.until(lambda: any("/waits/" in name for name in w.there()))
            begun = w.store.now()
            await virtual_seconds(20)
            process.kill()
            process = await w.process()
            await w.until(lambda: "r" in process.worker.runners)
            process.kill()
            await w.process()

            assert await w.result("r") == "too late"
            facts = await w.facts("r")
            assert len(facts.epochs) == 2
            assert facts.waits[0].due == pytest.approx(begun + 60, abs=1)
            assert 60 <= facts.takes[0].time - begun <= 20 + 2 * TAKEOVER

    run(backend, main)


def test_two_waits_compete(backend: str) -> None:
    """Waits of one name in two branches get one event each, in the order of the waits."""

    @a_workflow
    async def flow() -> list[str]:
        return list(await gather(wait_event("word", str), wait_event("word", str)))

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await virtual_seconds(1)
            await _send(w, "word", "one")
            await virtual_seconds(30)
            await _send(w, "word", "two")

            assert sorted(await w.result("r")) == ["one", "two"]

    run(backend, main)


def test_crash_at_each_write(backend: str) -> None:
    """B76: whatever write is a worker's last, three events reach three waits in their order."""

    @a_workflow
    async def flow() -> list[str]:
        return [await wait_event("word", str) for _ in range(3)]

    async def scenario(crash_at: int) -> bool:
        async with world() as w:
            process = await w.process()
            written = 0

            def dies(call: Any) -> None:
                nonlocal written
                if call.verb in {"create", "replace"} and concerns(call.name):
                    written += 1
                    if written == crash_at:
                        process.kill()

            process.backend.faults = dies  # type: ignore[attr-defined]  # the store of a worker of the test
            await w.start("r", flow)
            for word in ("one", "two", "three"):
                await virtual_seconds(3)
                await _send(w, "word", word)
            await virtual_seconds(30)
            await w.process()
            assert await w.result("r") == ["one", "two", "three"]
            return written >= crash_at

    async def main() -> None:
        crash_at = 1
        while await scenario(crash_at):
            crash_at += 1
        assert crash_at > 5

    run(backend, main)


def test_the_type_is_checked_at_the_sender(backend: str) -> None:
    """A sender that has the code is told at once that the value does not fit."""

    @a_workflow(events={"approval": Approval})
    async def flow() -> int:
        return int((await wait_event("approval")).limit)

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            handle = await _handle(w, workflow=flow)
            with pytest.raises(InvalidArguments):
                await handle.send("approval", "yes")
            assert not (await w.facts("r")).events

            assert await handle.send("approval", Approval("ann", 7)) == "accepted"
            assert await w.result("r") == 7

    run(backend, main)


def test_an_unfit_event_is_an_error_of_its_wait(backend: str) -> None:
    """A sender that does not know the type may send anything: the wait raises, once."""

    @a_workflow
    async def flow() -> list[str]:
        try:
            await wait_event("approval", Approval)
        except InvalidEvent as e:
            return [e.message.split(",")[0], (await wait_event("approval", Approval)).by]
        return []

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await _send(w, "approval", "yes", "k")
            await virtual_seconds(1)
            await _send(w, "approval", {"by": "ann", "limit": 1})

            said, by = await w.result("r")
            assert said == "run 'r' got event 'approval' with key 'k'"
            assert by == "ann"

    run(backend, main)


def test_sending_to_a_finished_run(backend: str) -> None:
    """B77: a run that is over is said to be; one that ends meanwhile too, whenever it does."""

    @a_workflow
    async def flow() -> str:
        await wait_event("go")
        return "done"

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await _send(w, "go")
            await w.result("r")

            assert await _send(w, "go") == "finished"
            assert len((await w.facts("r")).events) == 1

    run(backend, main)


def test_large_events(backend: str) -> None:
    """An event too large for a list is read when it is taken, and its copy replays."""
    text = "x" * 20_000

    @a_workflow
    async def flow() -> list[int]:
        first = len(await wait_event("text", str))
        return [first, len(await wait_event("text", str))]

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await _send(w, "text", text)
            await virtual_seconds(30)
            await _send(w, "text", text + "y")

            assert await w.result("r") == [20_000, 20_001]

    run(backend, main)


def test_names_of_events_stay_in_their_folder(backend: str) -> None:
    """B104: names and keys that look like paths are one part of a name each."""

    @a_workflow
    async def flow() -> str:
        return str(await wait_event("../lease", str))

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await _send(w, "../lease", "got it", "../../start")

            assert await w.result("r") == "got it"
            (stored,) = (await w.facts("r")).events
            assert stored.name.endswith("/events/..%2Flease/..%2F..%2Fstart")

    run(backend, main)


def test_values_are_checked_before_anything_is_written(backend: str) -> None:
    """What cannot be stored is refused, with the line to write."""

    async def main() -> None:
        with pytest.raises(InvalidArguments, match=r"events=\{'n': \.\.\.\}"):
            sending.encoded("n", Approval("ann", 1), None)

    run(backend, main)
