"""Time, chance and change of a run: the same on every replay."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import anyio
import pytest

import durable
from durable.decorators import step, workflow
from durable.errors import InvalidId, NotInWorkflow
from durable.runtime.closing import Attention
from durable.store.memory import Call
from durable.testing.virtual import virtual_bucket
from tests.runtime.clocks import BACKENDS, run, run_with_threads
from tests.runtime.runs import Run, a_step, a_workflow, value_of
from tests.runtime.world import world
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture
def anyio_backend() -> Any:
    from trio.testing import MockClock

    return "trio", {"clock": MockClock(autojump_threshold=0)}


@step(name="repeatable-test takes")
async def takes(seconds: float) -> float:
    await virtual_seconds(seconds)
    return seconds


@a_step
async def s(x: Any) -> Any:
    return x


@a_step
async def old(i: int) -> str:
    return f"old {i}"


@a_step
async def new(i: int) -> str:
    return f"new {i}"


def twice(backend: str, one: Run) -> list[Any]:
    """What the run returns live and on replay."""

    async def main() -> list[Any]:
        one.bucket = virtual_bucket()
        return [value_of(await one.execute()), value_of(await one.execute())]

    return run(backend, main)


# -- time ------------------------------------------------------------------------------------------


@backends
def test_now_is_the_time_of_the_last_outcome(backend: str) -> None:
    """Recorded times, live and on replay; nothing is written for it."""

    async def w() -> list[datetime]:
        seen = []
        for seconds in (5, 7):
            await takes(seconds)
            seen += [durable.now(), durable.now()]
            await virtual_seconds(60)  # no outcome
        return seen

    one = Run(a_workflow(w))
    live, replayed = twice(backend, one)

    assert live == replayed
    times = [datetime.fromtimestamp(step.time, UTC) for step in one.steps().values()]
    assert live == [times[0], times[0], times[1], times[1]]
    assert 66 < (live[2] - live[0]).total_seconds() < 68


@backends
def test_now_in_branches(backend: str) -> None:
    """A branch knows its own outcomes and those of around it, not its siblings'."""

    async def branch(seconds: float) -> list[datetime]:
        before = durable.now()
        await takes(seconds)
        return [before, durable.now()]

    async def w() -> list[datetime]:
        await takes(1)
        first = durable.now()
        one, two = await durable.gather(branch(10), branch(3))
        return [first, *one, *two, durable.now()]

    live, replayed = twice(backend, Run(a_workflow(w)))

    assert live == replayed
    first, before_one, after_one, before_two, after_two, last = live
    assert before_one == before_two == first
    assert 2 < (after_two - first).total_seconds() < 4
    assert 9 < (after_one - first).total_seconds() < 11
    assert last == after_one


@backends
def test_now_after_a_sleep_is_its_deadline(backend: str) -> None:
    """However late the run was woken."""

    async def w() -> list[datetime]:
        await takes(1)
        before = durable.now()
        await durable.sleep(5)
        return [before, durable.now()]

    live, replayed = twice(backend, Run(a_workflow(w)))

    assert live == replayed
    assert 5 <= (live[1] - live[0]).total_seconds() < 5.2


@pytest.mark.anyio
@pytest.mark.requires("trio")
async def test_now_begins_with_the_start_of_the_run() -> None:
    """Before there is any outcome, whenever a worker takes it; after that it only grows."""

    @workflow(name="repeatable-test begins")
    async def begins() -> list[datetime]:
        first = durable.now()
        await takes(40)
        return [first, durable.now()]

    async with world() as w:
        start = await w.start("r", begins)
        await virtual_seconds(500)
        process = await w.process()
        await virtual_seconds(20)
        process.kill()
        await w.process()
        first, second = await w.result("r")

        assert first.timestamp() == pytest.approx(start.created)
        assert (second - first).total_seconds() > 540


# -- chance ----------------------------------------------------------------------------------------


@backends
def test_random_and_uuid_follow_from_the_place(backend: str) -> None:
    """Each call has its own, the same at every execution, in its branch as in its order."""

    async def branch() -> list[Any]:
        return [durable.random(), durable.uuid()]

    async def w() -> list[Any]:
        alone = [durable.random(), durable.random(), durable.uuid(), durable.uuid()]
        await s(1)
        branches = await durable.gather(branch(), branch())
        return [*alone, *branches[0], *branches[1], durable.random(key="k")]

    live, replayed = twice(backend, Run(a_workflow(w)))

    assert live == replayed
    assert len(set(live)) == len(live)
    assert all(0 <= x < 1 for x in live if isinstance(x, float))
    assert all(isinstance(x, float | UUID) for x in live)


@pytest.mark.anyio
@pytest.mark.requires("trio")
async def test_two_runs_have_nothing_in_common() -> None:
    """Not even two of one workflow, or one id used again."""

    @workflow(name="repeatable-test chance")
    async def chance() -> list[Any]:
        return [durable.random(), durable.uuid()]

    async with world() as w:
        await w.process()
        await w.start("a", chance)
        await w.start("b", chance)

        assert not set(await w.result("a")) & set(await w.result("b"))


@backends
def test_one_more_call_is_noticed(backend: str) -> None:
    """Code that asks once more than before shifts the others: what depends on them has drifted.

    With a key it has not.
    """

    def code(more: bool, key: str | None) -> Any:
        async def w() -> Any:
            if more:
                durable.uuid()
            await s(durable.uuid(key))
            return await s(2)

        return a_workflow(w)

    async def main(key: str | None) -> Any:
        one = Run(code(False, key))
        value_of(await one.execute())
        one.forget("s.2")
        return await one.execute(definition=code(True, key))

    drifted = run(backend, lambda: main(None))
    assert isinstance(drifted, Attention)
    assert drifted.reason == "drift"
    assert value_of(run(backend, lambda: main("order"))) == 2


# -- change ----------------------------------------------------------------------------------------


def before() -> Any:
    async def w() -> list[str]:
        return [await old(i) for i in range(4)]

    return a_workflow(w)


def after(each_call: bool) -> Any:
    async def w() -> list[str]:
        said = []
        for i in range(4):
            if durable.patched("new", each_call=each_call):
                said.append(await new(i))
            else:
                said.append(await old(i))
        return said

    return a_workflow(w)


@backends
@pytest.mark.parametrize("each_call", [False, True])
def test_a_run_that_starts_with_the_new_code(backend: str, each_call: bool) -> None:
    """Says yes, at every execution, wherever it is resumed; it costs no write."""
    one = Run(after(each_call))

    async def main() -> None:
        for done in range(4, -1, -1):
            assert value_of(await one.execute()) == ["new 0", "new 1", "new 2", "new 3"]
            one.forget(*[f"new.{i + 1}" for i in range(done - 1, 4) if i >= 0 and done])

    run(backend, main)
    assert {verb for verb, name in one.bucket.log if "patch" in name} == set()


@backends
def test_a_run_that_began_with_the_old_code_ends_with_it(backend: str) -> None:
    """Also in a loop, and also when it is resumed several times."""
    one = Run(before())

    async def main() -> list[Any]:
        value_of(await one.execute())
        one.forget("old.3", "old.4")
        first = value_of(await one.execute(definition=after(False)))
        one.forget("old.4")
        return [first, value_of(await one.execute(definition=after(False)))]

    expected = ["old 0", "old 1", "old 2", "old 3"]
    assert run(backend, main) == [expected, expected]


@backends
def test_each_call_may_decide_for_itself(backend: str) -> None:
    """The loop goes on with the new code where its record ends, for ever."""
    one = Run(before())

    async def main() -> list[Any]:
        value_of(await one.execute())
        one.forget("old.3", "old.4")
        first = value_of(await one.execute(definition=after(True)))
        one.forget("new.2")
        return [first, value_of(await one.execute(definition=after(True)))]

    expected = ["old 0", "old 1", "new 2", "new 3"]
    assert run(backend, main) == [expected, expected]


@backends
def test_a_yes_is_carried_until_it_is_acknowledged(backend: str) -> None:
    """By whatever is recorded next, in whichever branch; a later no would be a drift."""

    async def branch() -> str:
        await takes(3)
        return str(await (new(0) if durable.patched("x") else old(0)))

    async def w() -> Any:
        return await durable.gather(takes(10), branch())

    one = Run(a_workflow(w))

    async def main() -> list[Any]:
        value_of(await one.execute())
        carried = [step.path for step in one.steps().values() if step.patches]
        recorded = list(one.steps())
        one.forget(*recorded[recorded.index(carried[0]) :])  # its owner died before these
        return [carried, value_of(await one.execute())[1]]

    carried, again = run(backend, main)
    assert carried == ["gather.1/1/new.1"]
    assert again == "new 0", "nothing had come of the yes: it may be decided again"


@backends
def test_a_write_that_never_lands_does_not_lose_it(backend: str) -> None:
    """The owner dies with the second record after the answer; its successor says the same."""
    one = Run(after(each_call=False))

    def dies(call: Call) -> None:
        if call.verb == "create" and "new.2" in call.name:
            assert one.execution is not None
            one.execution.close(Attention("test", "the owner dies here"))

    async def main() -> Any:
        one.faults = dies
        await one.execute()
        one.faults = None
        return value_of(await one.execute())

    assert run(backend, main) == ["new 0", "new 1", "new 2", "new 3"]


# -- where -----------------------------------------------------------------------------------------


@backends
def test_in_sync_workflows(backend: str) -> None:
    """The same words, without await."""

    @a_step
    def work(x: Any) -> Any:
        return x

    def w() -> list[Any]:
        first = [durable.random(), durable.uuid(), durable.patched("a")]
        work(1)
        return [*first, durable.now()]

    one = Run(a_workflow(w))

    async def main() -> list[Any]:
        return [value_of(await one.execute()), value_of(await one.execute())]

    live, replayed = run_with_threads(backend, main)
    assert live == replayed
    assert live[2] is True


def test_outside_a_run() -> None:
    """The machine's own; new code is what there is."""
    assert abs((durable.now() - datetime.now(UTC)).total_seconds()) < 5
    assert durable.random() != durable.random()
    assert durable.uuid() != durable.uuid()
    assert durable.patched("x")


@backends
def test_misuse(backend: str) -> None:
    """In a stray task the place would be chance; an id or a key must be one."""

    async def w() -> list[str]:
        said = []

        async def stray() -> None:
            for word in (durable.random, durable.uuid, lambda: durable.patched("x")):
                try:
                    word()
                except NotInWorkflow as e:
                    said.append(type(e).__name__)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stray)
        bad: list[Any] = ["", 5, "a\nb"]
        for word in (durable.patched, durable.random, durable.uuid):
            for key in bad:
                try:
                    word(key)
                except InvalidId as e:
                    said.append(type(e).__name__)
        return said

    assert value_of(run(backend, Run(a_workflow(w)).execute)) == [
        *["NotInWorkflow"] * 3,
        *["InvalidId"] * 9,
    ]


# -- versions --------------------------------------------------------------------------------------


@workflow(name="repeatable-test versions", version="2")
async def versions() -> list[str]:
    seen = [durable.current().version]
    await takes(60)
    return [*seen, durable.current().version]


@pytest.mark.anyio
@pytest.mark.requires("trio")
async def test_a_run_keeps_the_version_it_was_started_with() -> None:
    """Code of another version resumes it, and can tell."""
    async with world() as w:
        start = await w.start("r", versions)
        assert start.workflow_version == "2"
        process = await w.process()
        await virtual_seconds(30)
        process.kill()
        newer = workflow(name="repeatable-test versions", version="3")(versions.definition.fn)
        assert newer.definition.version == "3"
        await w.process()

        assert await w.result("r") == ["2", "2"]
