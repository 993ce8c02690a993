"""Limited queues on a virtual clock: never more than N, in order, nothing lost or leaked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import anyio
import msgspec
import pytest

from durable import Queue, sleep
from durable.client import Client
from durable.client.reading import read_status
from durable.decorators import step, workflow
from durable.errors import UsageError
from durable.protocol import names
from durable.runtime import asking, lines
from durable.runtime import slots as slots_of
from durable.runtime.facts import read_start
from durable.runtime.scopes import current
from durable.runtime.slots import Listed, Slots
from durable.store.memory import Call, Fault
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds

pytestmark = [pytest.mark.anyio, pytest.mark.requires("trio")]

bodies: list[str] = []
inside: set[str] = set()
most = [0]


@pytest.fixture
def anyio_backend() -> Any:
    from trio.testing import MockClock

    bodies.clear()
    inside.clear()
    most[0] = 0
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@step(name="queue-test body")
async def body(seconds: float) -> None:
    run = current().run_id
    bodies.append(run)
    inside.add(run)
    most[0] = max(most[0], len(inside))
    try:
        await virtual_seconds(seconds)
    finally:
        inside.discard(run)


MAILS = Queue("mails", concurrency=2)
ONE = Queue("one", concurrency=1)
KEPT = Queue("kept", concurrency=1, keep_slot=True)
SLOWLY = Queue("slowly", rate=(2, "30s"))


@workflow(name="queue-test send", queue=MAILS)
async def send(seconds: float = 10.0) -> str:
    await body(seconds)
    return current().run_id


@workflow(name="queue-test single", queue=ONE)
async def single(seconds: float = 10.0) -> str:
    await body(seconds)
    return current().run_id


@workflow(name="queue-test asleep", queue=ONE)
async def asleep() -> None:
    await body(1.0)
    await sleep(600)
    await body(1.0)


@workflow(name="queue-test dozing", queue=ONE)
async def dozing() -> None:
    await body(1.0)
    await sleep(600)
    await body(60.0)


@workflow(name="queue-test asleep of two", queue=MAILS)
async def asleep_of_two() -> None:
    await body(1.0)
    await sleep(600)


@workflow(name="queue-test asleep kept", queue=KEPT)
async def asleep_kept() -> None:
    await body(1.0)
    await sleep(600)
    await body(1.0)


@workflow(name="queue-test slow", queue=SLOWLY)
async def slow() -> None:
    await body(1.0)


QUEUES = ("mails", "one", "kept", "slowly")


async def worker(w: World, **more: Any) -> Any:
    return await w.process(serves=lambda name: name.startswith("queue-test"), queues=QUEUES, **more)


def left(w: World) -> list[str]:
    """What must be gone once all runs are over."""
    return [n for n in w.there() if "/slots/" in n or "/pending/" in n or n.startswith("live/")]


async def test_never_more_than_n_and_first_come_first_served() -> None:
    """Seven runs, two at a time, over three workers, in the order of their starts."""
    async with world() as w:
        for _ in range(3):
            await worker(w)
        for index in range(7):
            await w.start(f"r{index}", send)
            await virtual_seconds(0.1)
        for index in range(7):
            assert await w.result(f"r{index}") == f"r{index}"

        assert most == [2]
        assert [set(bodies[i : i + 2]) for i in (0, 2, 4)] == [
            {"r0", "r1"},
            {"r2", "r3"},
            {"r4", "r5"},
        ]
        await w.until(lambda: left(w) == [])


async def test_a_start_is_two_writes_and_a_ring() -> None:
    """Producers take no lock: `start`, the place in line, the bell."""
    async with world() as w:
        await w.start("r", send)

        assert Counter(v for v, _ in w.bucket.log) == {"create": 3}
        kinds = sorted(n.split("/")[0] for n in w.there())
        assert kinds == ["bells", "queues", "runs"]


async def test_priorities() -> None:
    """Lower goes first; among equals the earlier start."""
    async with world() as w:
        await w.start("first", single)
        await worker(w)
        await w.until(lambda: bodies == ["first"])
        for run, priority in (("late", 5), ("usual", 0), ("urgent", -5)):
            await w.start(run, single.options(priority=priority))
        for run in ("late", "usual", "urgent"):
            await w.result(run)

        assert bodies == ["first", "urgent", "usual", "late"]


async def test_a_sleeping_run_makes_room() -> None:
    """Its slot goes to the next; awake, it waits for one again."""
    async with world() as w:
        await worker(w)
        await w.start("sleeper", asleep)
        await virtual_seconds(1)
        await w.start("next", single, 1000.0)
        await w.until(lambda: "next" in bodies)
        assert await w.result("next") == "next"
        await w.result("sleeper")

        assert bodies == ["sleeper", "next", "sleeper"]
        assert most == [1]
        await w.until(lambda: left(w) == [])


async def test_a_sleeping_run_may_keep_its_slot() -> None:
    """With keep_slot nobody goes on meanwhile."""
    async with world() as w:
        await worker(w)
        await w.start("sleeper", asleep_kept)
        await w.until(lambda: bodies == ["sleeper"])
        await w.start("next", asleep_kept)
        await w.result("next")

        assert bodies == ["sleeper", "sleeper", "next", "next"]


async def test_a_rate() -> None:
    """Two starts in any 30 seconds, whoever dispatches."""
    async with world() as w:
        await worker(w)
        began = w.store.now()
        for index in range(5):
            await w.start(f"r{index}", slow)
        for index in range(5):
            await w.result(f"r{index}")

        assert 60 <= w.store.now() - began < 80


async def test_a_paused_queue_starts_nothing() -> None:
    """What goes on goes on; what waits waits until the queue is resumed, and says so."""
    async with world() as w:
        await worker(w)
        await w.start("a", single, 5.0)
        await w.until(lambda: bodies == ["a"])
        await lines.pause(w.store, queues=["one"], on=True)
        start = await w.start("b", single)
        await w.result("a")
        await virtual_seconds(100)
        assert bodies == ["a"]
        status = await read_status(w.store, "b", start)
        assert (str(status), status.reason) == ("waiting", "queue 'one' is paused")
        await lines.pause(w.store, queues=["one"], on=False)

        assert await w.result("b") == "b"


async def test_a_paused_workflow_starts_nothing() -> None:
    """Of a whole workflow type no run is taken, in whatever queue, and says so; others go on."""
    async with world() as w:
        await lines.pause(w.store, workflows=["queue-test send"], on=True)
        await worker(w)
        start = await w.start("a", send.options(queue="one"))
        await w.start("b", single)
        await w.result("b")
        await virtual_seconds(100)
        assert bodies == ["b"]
        status = await read_status(w.store, "a", start)
        assert (str(status), status.reason) == ("waiting", f"workflow {send.name!r} is paused")
        await lines.pause(w.store, workflows=["queue-test send"], on=False)

        assert await w.result("a") == "a"


async def test_a_run_started_by_name_of_the_queue_is_limited_too() -> None:
    """Whoever takes its marker finds the limits in the store, and puts it into the line."""
    async with world() as w:
        await worker(w)
        for index in range(4):
            await w.start(f"r{index}", send.options(queue="one"))
        for index in range(4):
            await w.result(f"r{index}")

        assert most == [1]
        await w.until(lambda: left(w) == [])


async def test_a_second_start_of_a_waiting_run_does_not_pass_the_limit() -> None:
    """The marker of a second start is taken, and finds no slot."""
    async with world() as w:
        await worker(w)
        await w.start("a", single, 20.0)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", single)
        await w.start("b", single)
        await w.start("b", single.options(queue="one"))
        await virtual_seconds(5)
        assert bodies == ["a"]
        await w.result("b")

        assert bodies == ["a", "b"]
        await w.until(lambda: left(w) == [])


async def test_a_cancelled_run_leaves_the_line() -> None:
    """It needs no slot to end, and the slot is for those behind it."""
    async with world() as w:
        await worker(w)
        await w.start("a", single, 20.0)
        await w.until(lambda: bodies == ["a"])
        start = await w.start("b", single)
        await asking.cancel(w.store, "b", start)
        await w.start("c", single)
        with anyio.fail_after(15):
            while (found := (await w.facts("b")).result) is None:
                await virtual_seconds(0.5)
        assert found.status == "cancelled"
        await w.result("c")

        assert bodies == ["a", "c"]
        await w.until(lambda: left(w) == [])


async def test_the_slot_survives_its_worker() -> None:
    """Taken over, the run goes on under the slot it has; nobody came in between."""
    async with world() as w:
        first = await worker(w)
        await w.start("a", single, 40.0)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", single)
        first.kill()
        inside.clear()
        await worker(w)
        await w.result("b")

        assert bodies == ["a", "a", "b"]
        assert most == [1]
        await w.until(lambda: left(w) == [])


def dies_at(index: int, concerns: Callable[[Call], bool], died: list[Call]) -> Any:
    """A process whose index-th call that concerns us is applied, and the last it makes."""
    seen = [0]

    def fault(call: Call) -> Fault | None:
        if not concerns(call):
            return None
        seen[0] += 1
        if seen[0] == index + 1:
            died.append(call)
            return Fault("slow_reply", seconds=10_000)
        return None

    return fault


def of_queues(call: Call) -> bool:
    return call.name.startswith(("runs/", "live/", "queues/", "history/"))


@pytest.mark.parametrize("index", range(40))
async def test_a_death_at_any_call_loses_and_leaks_nothing(index: int) -> None:
    """Whichever call a worker dies after: all five runs end, two at a time, no slot is left."""
    async with world() as w:
        died: list[Call] = []
        first = await worker(w, faults=dies_at(index, of_queues, died))
        for run in "abcde":
            await w.start(run, send, 5.0)
        with anyio.move_on_after(300):
            while not died:
                await virtual_seconds(0.1)
        assert died
        first.kill()
        inside.clear()
        await worker(w)
        for run in "abcde":
            await w.result(run)

        assert most[0] <= 2
        with anyio.fail_after(200):
            while left(w):
                await virtual_seconds(1)


async def test_a_dispatcher_without_room_still_dispatches() -> None:
    """Its one place is taken; a start finds a free slot, and the other worker, within seconds."""
    async with world() as w:
        first = await worker(w, concurrency=1)
        await w.start("a", send, 300.0)
        await w.until(lambda: bodies == ["a"])
        await worker(w, concurrency=1)
        await virtual_seconds(10)
        began = anyio.current_time()
        await w.start("b", send, 1.0)
        assert await w.result("b") == "b"

        assert first.worker.runners.keys() == {"a"}
        assert anyio.current_time() - began < 10


async def test_a_run_that_parks_gives_up_every_slot_that_it_was_given() -> None:
    """Two may each have given it one at the same time; the others need not wait for a tidying."""
    async with world() as w:
        await worker(w)
        await w.start("a", asleep_of_two)
        await w.until(lambda: bodies == ["a"])
        [first] = [n for n in w.there() if n.startswith("queues/mails/slots/")]
        stored = w.bucket.read(first)
        assert stored is not None
        second = names.slot("mails", 1)
        w.bucket.create(second, stored.body or b"", {"nonce": "another's"}, True)
        await w.until(lambda: names.marker("mails", "a") not in w.there())

        assert [n for n in w.there() if "/slots/" in n] == []


async def test_until_idle_waits_for_the_line() -> None:
    """A worker that ends when nothing is left does not leave runs in the line."""
    async with world() as w:
        for index in range(4):
            await w.start(f"r{index}", single, 5.0)
        process = await worker(w, until_idle=True)
        with anyio.fail_after(200):
            await process.gone.wait()

        assert len(bodies) == 4
        assert left(w) == []


async def test_slots_of_the_living_are_never_taken_away() -> None:
    """The tidying look frees what is over alone."""
    async with world() as w:
        await worker(w)
        await w.start("a", single, 400.0)
        await w.until(lambda: bodies == ["a"])
        await w.start("b", single, 1.0)
        await virtual_seconds(300)

        assert bodies == ["a"]
        assert [n for n in w.there() if "/slots/" in n] == [names.slot("one", 0)]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Queue("q", concurrency=0), "concurrency=0"),
        (lambda: Queue("q", concurrency=-1), "concurrency=-1"),
        (lambda: Queue("q", concurrency=cast("int", "3")), "concurrency='3'"),
        (lambda: Queue("q", concurrency=cast("int", 1.5)), "concurrency=1.5"),
        (lambda: Queue("q", rate=(0, 1)), "rate="),
        (lambda: Queue("q", rate=(1, 0)), "rate="),
        (lambda: Queue("q", rate=cast("tuple[int, int]", 5)), "rate=5"),
        (lambda: single.options(priority=5000), "priority=5000"),
    ],
)
def test_limits_that_cannot_be(make: Any, said: str) -> None:
    """Refused where they are written."""
    with pytest.raises(UsageError, match=said):
        make()


async def test_who_stands_in_line_again_has_a_place_that_nobody_saw() -> None:
    """A dispatcher that is about to delete the place of the run's last turn leaves the new one."""
    async with world() as w:
        await w.start("a", single)
        await w.start("b", single)
        slots = Slots(w.store, ONE.record())
        holder, start = await read_start(w.store, "a"), await read_start(w.store, "b")
        assert holder is not None
        assert start is not None
        assert await slots.make("a", holder, Listed()) is not None
        seen = await w.store.read(slots_of.pending_name("b", start))
        assert seen is not None

        assert await slots.admit("b", start, hint=-1, clean=True) is None
        await w.store.delete(seen.name, seen.generation)

        assert "b" in [pending.run for _, pending in await slots.waiting()]


def test_two_workflows_give_one_queue_the_same_limits() -> None:
    """Else the last would count and the other's limit be lost; quiet times are a workflow's own."""
    given = {
        "few": Queue("three", concurrency=3),
        "same": Queue("three", concurrency=3, debounce="5s"),
        "none": Queue("three", debounce="5s"),
    }
    of = {
        name: msgspec.structs.replace(single.definition, name=name, queue="three", limits=queue)
        for name, queue in given.items()
    }
    right = {name: of[name] for name in ("few", "same")}

    assert lines.limits_of(right, ["three"])["three"].concurrency == 3
    assert lines.limits_of(of, ["default"])["three"].concurrency == 3
    with pytest.raises(UsageError, match=r"'few' .* 'none' .* one set"):
        lines.limits_of(of, ["default", "three"])


async def test_a_queue_that_has_no_limits_costs_no_record() -> None:
    """Nothing is written for it, unless limits stand there that the code took away."""
    async with world() as w:
        quiet = Queue("three", debounce="5s")
        await lines.declare(w.store, quiet)
        assert w.there() == []

        await lines.declare(w.store, Queue("three", concurrency=3))
        await lines.declare(w.store, quiet)

        settings = await lines.read_settings(w.store, "three")
        assert settings is not None
        assert settings.concurrency is None


async def test_a_run_that_was_taken_keeps_its_new_owners_slot() -> None:
    """Its worker is slow to park it; meanwhile somebody has it go on elsewhere, in that slot."""
    async with world() as w:

        def slow_to_give_up(call: Call) -> Fault | None:
            parks = any(name.startswith("timers/") for name in w.there())
            if parks and call.verb == "read" and call.name == names.queue_settings("one"):
                return Fault("delayed", seconds=8.0)
            return None

        await worker(w, faults=slow_to_give_up)
        client = Client(w.store)
        await client.start(dozing.options(id="first"))
        await w.until(lambda: any(name.startswith("timers/") for name in w.there()))
        await worker(w)
        await client.skip("first", "sleep.1", None)
        await w.until(lambda: bodies == ["first", "first"])
        await client.start(single.options(id="second"))
        await virtual_seconds(30)

        assert inside == {"first"}
        assert await w.result("second") == "second"
        assert most[0] == 1
