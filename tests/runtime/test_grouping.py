"""Steps of group durability: recorded together, before anybody else can see what follows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import durable
from durable.errors import InvalidDefinition
from durable.protocol.records import Group
from durable.runtime import grouping
from durable.runtime.closing import Attention, LateRecord, Parked, Stopped
from durable.runtime.execution import Execution
from durable.store.memory import Call, Fault
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import Run, a_step, a_workflow, error_of, recorded, value_of
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)

bodies: list[str] = []


@pytest.fixture(autouse=True)
def _no_bodies() -> None:
    bodies.clear()


@a_step(durability="group")
async def g(x: int) -> int:
    bodies.append(f"g{x}")
    return 10 * x + bodies.count(f"g{x}")  # another value each time


@a_step(durability="group")
def sync_g(x: int) -> int:
    bodies.append(f"sync g{x}")
    return x


@a_step(durability="group")
async def slow_g(x: int, seconds: float) -> int:
    await virtual_seconds(seconds)
    return x


@a_step
async def s(x: int) -> int:
    bodies.append(f"s{x}")
    return x


def log_of(one: Run) -> list[str]:
    """The creates of the run's folder so far, without its place."""
    return [name.split("/", 3)[-1] for verb, name in one.bucket.log if verb == "create"]


def value(backend: str, one: Run, **kwargs: Any) -> Any:
    return value_of(run(backend, lambda: one.execute(**kwargs)))


@backends
def test_many_steps_are_few_writes(backend: str) -> None:
    """A thousand calls cost a write for each five hundred, not one each, and none is lost."""

    async def w() -> int:
        return sum([await g(x) for x in range(1000)])

    one = Run(a_workflow(w))

    total = value(backend, one)

    assert total == sum(10 * x + 1 for x in range(1000))
    assert len(one.groups()) <= 4
    assert len(log_of(one)) == len(one.groups())
    assert [step.n for step in one.steps().values()] == list(range(1, 1001))

    assert value(backend, one) == total
    assert len(bodies) == 1000


@backends
def test_recorded_before_an_ordinary_body_begins(backend: str) -> None:
    """What an ordinary step sees of the steps before it is in the store already."""
    seen: list[int] = []

    @a_step
    async def look(x: int) -> int:
        seen.append(sum(len(group.steps) for group in one.groups()))
        return x

    async def w() -> int:
        total = await g(1) + await g(2)
        await look(total)
        return total + await g(3)

    one = Run(a_workflow(w))
    value(backend, one)

    assert seen == [2]
    assert log_of(one) == ["groups/1", "steps/look.1", "groups/2"]


@backends
def test_recorded_before_the_run_ends(backend: str) -> None:
    """A run that ends right behind a step has recorded it."""

    async def w() -> int:
        return int(await g(1))

    one = Run(a_workflow(w))

    assert value(backend, one) == 11
    assert [step.path for step in one.groups()[0].steps] == ["g.1"]


@backends
def test_recorded_before_a_wait_begins(backend: str) -> None:
    """Before a sleep is claimed, and so before the run can be parked in it."""

    async def w() -> None:
        await g(1)
        await durable.sleep(3600)

    one = Run(a_workflow(w))

    assert isinstance(run(backend, one.execute), Parked)
    assert log_of(one) == ["groups/1", "waits/sleep.1"]


@backends
def test_recorded_when_a_run_parks(backend: str) -> None:
    """What has come to its end beside a wait is recorded before the run leaves."""

    async def w() -> None:
        await durable.gather(slow_g(1, 0.5), durable.sleep(3600))

    one = Run(a_workflow(w))

    assert isinstance(run(backend, one.execute), Parked)
    assert len(one.groups()) == len(one.steps()) == 1


@backends
def test_recorded_before_something_is_published(backend: str) -> None:
    """Published progress may follow from what was only in memory."""

    async def w() -> None:
        durable.publish("first", await g(1))
        await slow_g(2, 0.5)

    one = Run(a_workflow(w))

    value(backend, one)

    assert log_of(one)[:2] == ["groups/1", "state/first/1"]


@backends
def test_recorded_before_an_open_call_is_recorded(backend: str) -> None:
    """An ordinary call that the run cancels because of a value is recorded behind that value."""

    @a_step
    async def for_ever() -> None:
        await anyio.sleep_forever()

    async def w() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(for_ever)
            if await slow_g(1, 0.1):
                group.cancel_scope.cancel()

    one = Run(a_workflow(w))

    value(backend, one)

    assert log_of(one) == ["groups/1", "steps/for_ever.1"]


@backends
def test_recorded_within_a_second(backend: str) -> None:
    """What nothing waits for is recorded soon, so that a crash loses little."""

    async def look(_: Execution) -> None:
        await virtual_seconds(1.5)
        found.append(len(one.groups()))

    async def w() -> int:
        await g(1)
        return int(await slow_g(2, 10))

    found: list[int] = []
    one = Run(a_workflow(w))
    value(backend, one, meanwhile=look)

    assert found == [1]


@backends
def test_what_is_lost_runs_again(backend: str) -> None:
    """The bodies since the last group run again, those before it do not."""

    async def die(execution: Execution) -> None:
        await virtual_seconds(0.5)
        execution.close(Stopped("lease"))

    async def w() -> list[int]:
        first = await g(1)
        await s(0)
        second = await g(2)
        await slow_g(0, 2)
        return [first, second]

    one = Run(a_workflow(w))

    assert run(backend, lambda: one.execute(meanwhile=die)) == Stopped("lease")
    assert bodies == ["g1", "s0", "g2"]

    assert value(backend, one) == [11, 22]
    assert bodies == ["g1", "s0", "g2", "g2"]


@backends
def test_drained_runs_record_first(backend: str) -> None:
    """A worker that shuts down in good order loses nothing."""

    async def drain(execution: Execution) -> None:
        await virtual_seconds(0.5)
        execution.drain()

    async def w() -> int:
        await g(1)
        await virtual_seconds(0.7)
        return int(await g(2))

    one = Run(a_workflow(w))

    assert run(backend, lambda: one.execute(meanwhile=drain)) == Stopped("drain")
    assert list(one.steps()) == ["g.1"]


@backends
def test_a_group_that_landed_late_counts(backend: str) -> None:
    """A dead owner's group is there already: what was only in memory is forgotten."""

    async def w() -> list[int]:
        return [await g(1), await s(2)]

    one = Run(a_workflow(w))

    def land(call: Call) -> Fault | None:
        if call.name.endswith("groups/1") and not one.groups():
            late = recorded("g.1", 1, 99)
            one.put_group(Group(1, 1, "late", 0.0, [late]))
        return None

    one.faults = land
    assert run(backend, one.execute) == LateRecord("g.1")
    assert bodies == ["g1"]

    one.faults = None
    assert value(backend, one) == [99, 2]
    assert value(backend, one) == [99, 2]
    assert bodies == ["g1", "s2"]


@backends
def test_a_lost_answer_is_repeated(backend: str) -> None:
    """An own group whose answer was lost is recognised."""

    async def w() -> list[int]:
        return [await g(1), await s(2)]

    one = Run(a_workflow(w))
    lost = iter([Fault("reply_lost")])
    one.faults = lambda call: next(lost, None) if call.name.endswith("groups/1") else None

    assert value(backend, one) == [11, 2]
    assert bodies == ["g1", "s2"]


@backends
def test_one_group_is_under_way_at_a_time(backend: str) -> None:
    """A group that follows from another is sent once that one is recorded."""

    def slow(call: Call) -> Fault | None:
        return Fault("delayed", seconds=10) if call.name.endswith("groups/1") else None

    async def look(_: Execution) -> None:
        await virtual_seconds(5)
        found.append(log_of(one))

    async def w() -> int:
        for x in range(3):
            await slow_g(x, 1.1)
        return int(await s(1))

    found: list[list[str]] = []
    one = Run(a_workflow(w), faults=slow)
    value(backend, one, meanwhile=look)

    assert found == [["groups/1"]]
    assert [len(group.steps) for group in one.groups()] == [1, 2]


@backends
def test_no_more_than_two_groups_in_memory(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a group is on its way for long, the run waits instead of filling the memory."""
    monkeypatch.setattr(grouping, "STEPS", 10)

    def slow(call: Call) -> Fault | None:
        return Fault("delayed", seconds=10) if call.name.endswith("groups/1") else None

    async def look(_: Execution) -> None:
        await virtual_seconds(5)
        found.append(len(bodies))

    async def w() -> None:
        for x in range(100):
            await g(x)

    found: list[int] = []
    one = Run(a_workflow(w), faults=slow)
    value(backend, one, meanwhile=look)

    assert 20 <= found[0] <= 32
    assert len(one.steps()) == 100


@backends
def test_errors_are_outcomes(backend: str) -> None:
    """A step that fails for good is recorded with the others; its failed attempts by themselves."""

    @a_step(durability="group", attempts=2)
    async def bad(x: int) -> int:
        bodies.append(f"bad{x}")
        raise ValueError(f"bad {x}")

    async def w() -> str:
        await g(1)
        try:
            await bad(1)
        except ValueError as e:
            return str(e)
        return "no error"

    one = Run(a_workflow(w))

    assert value(backend, one) == "bad 1"
    assert log_of(one) == ["groups/1", "attempts/bad.1/1", "groups/2"]
    assert value(backend, one) == "bad 1"
    assert bodies == ["g1", "bad1", "bad1"]


@backends
def test_order_among_branches(backend: str) -> None:
    """Outcomes of branches are handed over again in the order of their numbers."""
    log: list[int] = []

    async def noted(call: Awaitable[int]) -> None:
        log.append(await call)

    async def w() -> list[int]:
        log.clear()
        await durable.gather(noted(slow_g(1, 3)), noted(s(2)), noted(slow_g(3, 1)))
        return log

    one = Run(a_workflow(w))

    assert value(backend, one) == [2, 3, 1]
    assert value(backend, one) == [2, 3, 1]


@backends
def test_map_over_cheap_steps(backend: str) -> None:
    """A hundred items of a map are one write."""

    async def w() -> list[int]:
        return list(await durable.map(g, range(100), limit=10))

    one = Run(a_workflow(w))

    expected = [10 * x + 1 for x in range(100)]
    assert value(backend, one) == expected
    assert len(one.groups()) <= 2
    assert value(backend, one) == expected
    assert len(bodies) == 100


def test_sync_workflows() -> None:
    """A sync workflow simply calls them, and they are recorded together as well."""

    def w() -> int:
        return sum(sync_g(x) for x in range(20))

    one = Run(a_workflow(w))

    assert value_of(anyio.run(one.execute)) == 190
    assert len(one.groups()) == 1
    assert value_of(anyio.run(one.execute)) == 190
    assert len(bodies) == 20


@backends
def test_what_rides_on_records(backend: str) -> None:
    """A sleep and a yes of `patched` that come before a group are known from it."""

    async def w() -> list[Any]:
        log: list[Any] = []

        async def sleeper() -> None:
            await durable.sleep(0)
            log.append("slept")

        async def stepper() -> None:
            log.append(await slow_g(1, 2))

        await durable.gather(sleeper(), stepper())
        log.append(durable.patched("new"))
        log.append(await g(2))
        return log

    one = Run(a_workflow(w))

    assert value(backend, one) == ["slept", 1, True, 21]
    carrier = one.groups()[0].steps[0]
    assert [sleep.n for sleep in carrier.slept] == [1]
    assert value(backend, one) == ["slept", 1, True, 21]
    assert "new" in {p for group in one.groups() for step in group.steps for p in step.patches}


@backends
def test_a_failed_run_records_first(backend: str) -> None:
    """The undo actions of a run that fails begin when everything is recorded."""

    async def give_back(x: int) -> None:
        bodies.append(f"{len(one.groups())} groups")

    @a_step(undo=give_back)
    async def take(x: int) -> None:
        return None

    async def w() -> None:
        await take(1)
        await g(1)
        raise ValueError("no")

    one = Run(a_workflow(w))

    assert str(error_of(run(backend, one.execute))) == "no"
    assert bodies == ["g1", "1 groups"]


@backends
def test_a_replay_writes_nothing(backend: str) -> None:
    """Nor does it run bodies: it ends where the record ends."""

    async def w() -> int:
        await g(1)
        await s(1)
        return int(await g(2))

    one = Run(a_workflow(w))
    one.put_group(Group(1, 1, "n", 0.0, [recorded("g.1", 1, 5)]))
    one.put_step(recorded("s.1", 2, 1))

    closing = run(backend, lambda: one.execute(replay_only=True))

    assert closing == Stopped("replayed", path="g.2")
    assert bodies == []


@backends
def test_recorded_before_somebody_is_asked(backend: str) -> None:
    """A run that needs attention has recorded what brought it there."""

    async def w() -> None:
        await g(1)
        await s(1)

    one = Run(a_workflow(w))
    one.put_step(recorded("s.1", 1, kind="sleep"))

    assert isinstance(run(backend, one.execute), Attention)
    assert log_of(one) == ["groups/1"]


@backends
def test_others_have_their_turn(backend: str) -> None:
    """A run that waits for no store does not keep the event loop to itself."""
    turns: list[int] = []

    async def count(_: Execution) -> None:
        while len(bodies) < 100:
            turns.append(len(bodies))
            await anyio.lowlevel.checkpoint()

    async def w() -> None:
        for x in range(100):
            await g(x)

    value(backend, Run(a_workflow(w)), meanwhile=count)

    assert len(turns) >= 100


def test_what_cannot_be_grouped() -> None:
    """A step that must not run twice, or is to be undone, is recorded by itself."""

    def undo() -> None:
        pass

    options: list[Callable[[], Any]] = [
        lambda: durable.step(name="no group", durability="group", at_most_once=True)(undo),
        lambda: durable.step(name="no group", durability="group", undo=undo)(undo),
        lambda: durable.step(name="no group", durability="some")(undo),  # type: ignore[call-overload]  # wrong on purpose
    ]
    for option in options:
        with pytest.raises(InvalidDefinition, match="no group"):
            option()
