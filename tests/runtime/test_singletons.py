"""Singletons on a virtual clock: one run at a time, and nobody is left waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from durable import sleep
from durable.decorators import step, workflow
from durable.protocol import failures, moments, names, records
from durable.protocol.records import LockRecord
from durable.runtime import asking, singletons
from durable.runtime.scopes import current
from durable.store.memory import Call, Fault
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds

pytestmark = [pytest.mark.anyio, pytest.mark.requires("trio")]

inside: set[str] = set()  # runs whose bodies are running, under one key
bodies: list[str] = []
most = [0]


@pytest.fixture
def anyio_backend() -> Any:
    from trio.testing import MockClock

    bodies.clear()
    inside.clear()
    most[0] = 0
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@step(name="singleton-test body")
async def body(seconds: float) -> None:
    run = current().run_id
    bodies.append(run)
    inside.add(run)
    most[0] = max(most[0], len(inside))
    try:
        await virtual_seconds(seconds)
    finally:
        inside.discard(run)


def singleton(on_conflict: Any, **options: Any) -> Any:
    """A singleton of one key, which runs for so many seconds."""

    async def fn(seconds: float = 30.0) -> str:
        await body(seconds)
        return current().run_id

    name = f"singleton-test {on_conflict} {sorted(options.items())}"
    return workflow(name=name, singleton="key", on_conflict=on_conflict, **options)(fn)


SKIP, RAISE, JOIN = singleton("skip"), singleton("raise"), singleton("join")
QUEUE, REPLACE = singleton("queue"), singleton("replace")
WAIT, BRIEF = singleton("wait"), singleton("wait", max_wait="20s")
TRIES = singleton("wait", max_attempts=3, attempt_every="20s")
ONCE = singleton("wait", max_attempts=1)
BOUND = singleton("queue", lock_ttl="40s")


def key_of(key: str, seconds: float) -> str:
    return f"k-{key}"


@workflow(name="singleton-test keyed", singleton=key_of, on_conflict="queue")
async def keyed(key: str, seconds: float) -> None:
    await body(seconds)


@workflow(name="singleton-test asleep", singleton="key", on_conflict="queue")
async def asleep() -> None:
    await body(1.0)
    await sleep(3600)
    await body(1.0)


async def lock(w: World) -> LockRecord | None:
    return await singletons.peek(w.store, "key")


async def left(w: World) -> list[str]:
    """What waits or is held: nothing, once all runs are over."""
    return [n for n in w.there() if n.startswith(("live/", "timers/")) or "/wait/" in n]


async def error(w: World, run: str) -> BaseException:
    await w.result(run)
    found = (await w.facts(run)).result
    assert found is not None
    assert found.failure is not None
    return failures.rebuild(found.failure)


async def test_skip_names_the_holder() -> None:
    """Who finds the lock held ends without having begun, and says who goes on since when."""
    async with world() as w:
        await w.process()
        await w.start("a", SKIP)
        await w.until(lambda: bodies == ["a"])
        held = await lock(w)
        await w.start("b", SKIP)
        with anyio.fail_after(20):
            while (found := (await w.facts("b")).result) is None:
                await virtual_seconds(0.1)

        assert found.status == "completed"
        assert found.skipped is not None
        assert held is not None
        assert (found.skipped.run, found.skipped.since) == ("a", held.since)
        assert await w.result("a") == "a"
        assert bodies == ["a"]


async def test_raise_fails() -> None:
    """The error says who has the lock."""
    async with world() as w:
        await w.process()
        await w.start("a", RAISE)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", RAISE)
        raised = await error(w, "b")

        assert getattr(raised, "holder", "") == "a"
        assert "run 'a'" in str(raised)


async def test_join_shares_the_outcome() -> None:
    """The record says whose outcome it is."""
    async with world() as w:
        await w.process()
        await w.start("a", JOIN)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", JOIN)
        with anyio.fail_after(20):
            while (found := (await w.facts("b")).result) is None:
                await virtual_seconds(0.1)

        assert found.joined is not None
        assert found.joined.run == "a"


@pytest.mark.parametrize("kind", [WAIT, QUEUE])
async def test_waiting_is_first_come_first_served_and_holds_no_worker(kind: Any) -> None:
    """Five runs go on one after the other in the order of their start; who waits is parked."""
    async with world() as w:
        process = await w.process()
        for run in "abcde":
            await w.start(run, kind)
            await virtual_seconds(1)
        await w.until(lambda: len(process.worker.runners) == 1)
        await w.until(lambda: len([n for n in w.there() if "/wait/" in n]) == 4)
        for run in "abcde":
            assert await w.result(run) == run

        assert bodies == list("abcde")
        assert most == [1]
        await w.until(lambda: not [n for n in w.there() if n.startswith(("live/", "timers/"))])
        assert await left(w) == []


async def test_a_release_wakes_at_once() -> None:
    """Nobody polls: the next goes on within seconds of the end, however long it waited."""
    async with world() as w:
        await w.process()
        await w.start("a", QUEUE, 1000.0)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", QUEUE, 1.0)
        await virtual_seconds(500)
        calls = len(w.bucket.log)
        await virtual_seconds(100)
        of_b = [c for c in w.bucket.log[calls:] if "runs/b/" in c[1] or "locks" in c[1]]
        assert of_b == []
        await w.result("a")
        ended = w.store.now()
        await w.result("b")

        assert w.store.now() - ended < 10


async def test_a_bounded_wait_ends_with_an_error() -> None:
    """After max_wait the run fails, and says how long it waited for whom."""
    async with world() as w:
        await w.process()
        await w.start("a", BRIEF, 100.0)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", BRIEF)
        began = w.store.now()
        raised = await error(w, "b")

        assert "after waiting 20 s" in str(raised)
        assert 20 <= w.store.now() - began < 30
        assert [n for n in w.there() if "/wait/" in n] == []
        assert await w.result("a") == "a"


async def test_a_wait_of_some_attempts_is_parked_in_between() -> None:
    """It asks at once and every 20 s, is woken for no other reason, and fails after the third."""
    async with world() as w:
        await w.process()
        await w.start("a", TRIES, 100.0)
        await w.until(lambda: bodies == ["a"])
        began = w.store.now()
        await w.start("b", TRIES)
        for attempt in (1, 2):
            due = moments.stamp(began + 20 * attempt)
            await w.until(
                lambda due=due: any(names.timer_due(n) >= due for n in w.hints("timers/"))
            )
            await w.until(lambda: not any(n.endswith("-b") for n in w.hints("live/")))
            assert len(w.hints("timers/")) == 1
        raised = await error(w, "b")

        assert "after waiting 40 s" in str(raised)
        assert 40 <= w.store.now() - began < 50
        assert await w.result("a") == "a"


async def test_who_asks_once_leaves_the_line() -> None:
    """A run that is turned away before it was ever parked stands in line no more."""
    async with world() as w:
        await w.process()
        await w.start("a", ONCE, 20.0)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", ONCE)
        raised = await error(w, "b")
        await w.until(lambda: len(w.hints("live/")) == 1)

        assert "after waiting 0 s" in str(raised)
        assert [n for n in w.there() if "/wait/" in n] == []


async def test_who_is_turned_away_while_the_lock_becomes_free_passes_it_on() -> None:
    """The holder ends and wakes the first in line, who just gave up: the second is woken."""
    async with world() as w:

        def slow(call: Call) -> Fault | None:
            is_result = call.name.startswith("runs/b/") and call.name.endswith("/result")
            return Fault("delayed", seconds=40.0) if is_result and call.verb == "create" else None

        await w.process(faults=slow)
        await w.start("a", QUEUE, 20.0)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", ONCE)
        await virtual_seconds(2)
        await w.start("c", QUEUE, 1.0)
        assert await w.result("a") == "a"

        assert await w.result("c") == "c"
        assert bodies == ["a", "c"]


async def test_attempts_do_not_delay_who_is_woken() -> None:
    """The end of the holder wakes the run between two attempts."""
    async with world() as w:
        await w.process()
        await w.start("a", TRIES, 25.0)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", TRIES, 1.0)
        assert await w.result("a") == "a"
        ended = w.store.now()
        assert await w.result("b") == "b"

        assert w.store.now() - ended < 10


@pytest.mark.parametrize("flow", [TRIES, BOUND, BRIEF], ids=["attempts", "ttl", "max-wait"])
@pytest.mark.parametrize("ends", ["released", "cancelled"])
async def test_a_waiter_that_is_woken_early_leaves_no_timer(flow: Any, ends: str) -> None:
    """The hint by which it would have looked by itself goes, however it was named."""
    async with world() as w:
        await w.process()
        await w.start("a", flow, 12.0)
        await w.until(lambda: bodies == ["a"])
        start = await w.start("b", flow, 300.0)
        await w.until(lambda: bool(w.hints("timers/")) and len(w.hints("live/")) == 1)
        if ends == "cancelled":
            await asking.cancel(w.store, "b", start)
            await w.result("b")
        else:
            await w.until(lambda: bodies == ["a", "b"])
        await w.until(lambda: not w.hints("timers/"))

        assert bodies[0] == "a"


async def test_replace_cancels_the_holder_and_who_waits_ahead() -> None:
    """The last one runs; those before it end cancelled, one without having begun."""
    async with world() as w:
        await w.process()
        await w.start("a", REPLACE, 500.0)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", QUEUE, 5.0)
        await virtual_seconds(5)
        await w.start("c", REPLACE, 5.0)
        assert await w.result("c") == "c"

        for run in "ab":
            found = (await w.facts(run)).result
            assert found is not None
            assert found.status == "cancelled"
        assert bodies == ["a", "c"]
        assert most == [1]


async def test_different_keys_never_block_each_other() -> None:
    """The function of the arguments gives the key."""
    async with world() as w:
        await w.process()
        for key in "xyz":
            await w.start(key, keyed, key, 20.0)
        await w.until(lambda: len(inside) == 3)
        await w.start("x2", keyed, "x", 1.0)

        assert inside == {"x", "y", "z"}
        await w.result("x2")
        assert most == [3]


async def test_the_lock_is_held_across_a_sleep_and_a_death() -> None:
    """Parked for an hour, resumed by another worker: nobody comes in between."""
    async with world() as w:
        first = await w.process()
        await w.start("a", asleep)
        await w.until(lambda: bodies == ["a"])
        await w.until(lambda: not first.worker.runners)
        await w.start("b", QUEUE, 1.0)
        await virtual_seconds(60)
        first.kill()
        await w.process()
        assert await w.result("b") == "b"

        assert bodies == ["a", "a", "b"]


async def test_a_ttl_bounds_how_long_others_wait() -> None:
    """After it the next goes on, woken by time; the holder is not stopped."""
    async with world() as w:
        await w.process()
        await w.start("a", BOUND, 200.0)
        await w.until(lambda: bodies == ["a"])
        began = w.store.now()
        await w.start("b", BOUND, 1.0)
        assert await w.result("b") == "b"

        assert 40 <= w.store.now() - began < 50
        assert await w.result("a") == "a"


async def test_a_cancelled_waiter_lets_the_next_pass() -> None:
    """It ends without having begun, and what would have woken it wakes the one behind it."""
    async with world() as w:
        await w.process()
        await w.start("a", QUEUE, 60.0)
        await w.until(lambda: bodies == ["a"])
        start = await w.start("b", QUEUE)
        await virtual_seconds(2)
        await w.start("c", QUEUE, 1.0)
        await virtual_seconds(2)
        await asking.cancel(w.store, "b", start)
        assert await w.result("c") == "c"

        assert bodies == ["a", "c"]
        assert await left(w) == []


async def test_a_purged_holder_frees_the_lock() -> None:
    """`start` names its instance no more: that is as good as a result."""
    async with world() as w:
        start = await w.start("gone", QUEUE)
        held = LockRecord("key", "gone", "other instance", start.workflow, w.store.now(), "n")
        await w.store.create(names.lock("key"), records.encode(held), nonce="n")
        await w.process()
        await w.start("b", QUEUE, 1.0)

        assert await w.result("b") == "b"


async def test_released_by_force_the_holder_is_cancelled() -> None:
    """Without force a live holder keeps it."""
    async with world() as w:
        await w.process()
        await w.start("a", QUEUE, 600.0)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", QUEUE, 1.0)
        await virtual_seconds(5)

        assert (await singletons.release(w.store, "key", force=False))[1] is False
        assert (await singletons.release(w.store, "key", force=True))[1] is True
        assert await w.result("b") == "b"
        found = (await w.facts("a")).result
        assert found is not None
        assert found.status == "cancelled"


def dies_at(index: int, concerns: Callable[[Call], bool], when: list[Any]) -> Any:
    """A process that dies at its index-th call that concerns us, before or after it is applied."""
    seen = [0]

    def fault(call: Call) -> Fault | None:
        if not concerns(call):
            return None
        seen[0] += 1
        if seen[0] == index + 1:
            when.append(call)
            return Fault("slow_reply", seconds=10_000)
        return None

    return fault


def of_singletons(call: Call) -> bool:
    return call.name.startswith(("runs/", "live/", "locks/", "timers/", "history/"))


@pytest.mark.parametrize("index", range(26))
async def test_a_death_at_any_call_leaves_no_orphan(index: int) -> None:
    """Whichever call the first worker dies after, the three runs end, one at a time."""
    async with world() as w:
        died: list[Call] = []
        first = await w.process(faults=dies_at(index, of_singletons, died))
        for run in "abc":
            await w.start(run, QUEUE, 5.0)
            await virtual_seconds(0.5)
        with anyio.move_on_after(300):
            while not died:
                await virtual_seconds(0.1)
        assert died
        first.kill()
        await w.process()
        for run in "abc":
            await w.result(run)

        assert most == [1]
        await virtual_seconds(90)
        assert await left(w) == []


def test_stored_as_text() -> None:
    """A lock can be read with any tool."""
    held = LockRecord("key", "r", "i", "w", 1.0, "n")

    assert msgspec.json.decode(records.encode(held))["run"] == "r"
