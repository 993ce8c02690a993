"""Undo actions: what a run that does not complete takes back, in which order, whatever crashes."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import anyio
import pytest
from msgspec import Raw

import durable
from durable.client import Client, Handle
from durable.decorators import step, workflow
from durable.errors import InvalidArguments, InvalidDefinition, NeedsAttention, RunCancelled
from durable.protocol import names, records
from durable.protocol.records import Undo
from durable.protocol.retries import Retry
from durable.runtime.closing import Closing, Finished
from durable.runtime.execution import Execution
from durable.store import Refused
from durable.store.memory import Call, Fault
from durable.testing.virtual import virtual_bucket
from tests.facts import becomes_true
from tests.runtime.clocks import BACKENDS, run, run_with_threads, virtual
from tests.runtime.runs import INSTANCE, RUN, Run, a_step, a_workflow, value_of
from tests.runtime.world import DiesAt, world
from tests.virtual_time import virtual_seconds

backends = pytest.mark.parametrize("backend", BACKENDS)

did: list[Any] = []  # what bodies did; each test begins with an empty one


@pytest.fixture(autouse=True)
def _clear() -> None:
    did.clear()


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


async def give_back(room: str, *, nights: int = 1, result: str | None = None) -> None:
    did.append(("give back", room, nights, result))


@step(name="saga-test book", undo=give_back, attempts=1)
async def book(room: str, *, nights: int = 1) -> str:
    did.append(("book", room))
    if room == "slow":
        await anyio.sleep_forever()
    if room == "none":
        raise LookupError("no room")
    return f"key {room}"


@a_step(attempts=1)
async def fail(why: str) -> None:
    raise ValueError(why)


@a_step
async def clean(x: int) -> int:
    did.append(("clean", x))
    return x


def failed(closing: Closing | None) -> tuple[str, list[str]]:
    """The message and the notes of a run that failed or was cancelled."""
    assert isinstance(closing, Finished), closing
    assert closing.failure is not None
    return closing.failure.message, closing.failure.notes


def twice(backend: str, one: Run) -> Closing | None:
    """What the run comes to; its replay comes to the same, and runs nothing."""

    async def main() -> Closing | None:
        live = await one.execute()
        before, begun = list(did), one.begun
        replay = await one.execute()
        assert one.begun == []
        assert did == before
        assert isinstance(live, Finished)
        assert isinstance(replay, Finished)
        assert (live.failure is None) == (replay.failure is None)
        if live.failure is not None:
            assert failed(replay) == failed(live)
        one.progress.extend(f"begin {path}" for path in begun)
        return live

    return run(backend, main)


# -- a failed run ---------------------------------------------------------------------------------


@backends
def test_a_failed_run_is_undone_backwards(backend: str) -> None:
    """Each action gets the step's arguments and result, once, and is recorded as a step."""

    async def w() -> None:
        await book("a")
        await book("b", nights=2)
        await fail("sold out")

    one = Run(a_workflow(w))

    assert failed(twice(backend, one)) == ("sold out", [])
    assert did == [
        ("book", "a"),
        ("book", "b"),
        ("give back", "b", 2, "key b"),
        ("give back", "a", 1, "key a"),
    ]
    steps = one.steps()
    first, second, *_ = steps
    assert list(steps)[-2:] == [f"undo/{second}", f"undo/{first}"]
    assert [s.kind for s in steps.values()] == ["step", "step", "step", "undo", "undo"]
    assert [s.name for s in steps.values()][-1] == "undo saga-test book"


@backends
def test_a_run_that_completes_undoes_nothing(backend: str) -> None:
    """Nor does one whose function catches the error and returns."""

    async def w() -> str:
        await book("a")
        try:
            await fail("sold out")
        except ValueError:
            return "went on"
        return ""

    one = Run(a_workflow(w))

    assert value_of(twice(backend, one)) == "went on"
    assert did == [("book", "a")]


@backends
def test_cost(backend: str) -> None:
    """Two creates, the registration before the body and the outcome after it; no read."""

    async def w() -> str:
        return str(await book("a"))

    one = Run(a_workflow(w))

    async def main() -> Any:
        await one._prepare(lambda: True, False, None)
        one.calls()
        return await one.execute()

    assert value_of(run(backend, main)) == "key a"
    calls = one.calls()
    assert calls.pop("list") == 1  # the owner's own look
    assert calls == {"create": 2}
    created = [name for verb, name in one.bucket.log if verb == "create"][-2:]
    assert [name.split("/")[3] for name in created] == ["undo", "steps"]


@backends
def test_a_step_that_failed_is_undone_too(backend: str) -> None:
    """It may have done its work before it failed; its action is told that nothing is known."""

    async def w() -> None:
        await book("a")
        await book("none")

    one = Run(a_workflow(w))

    assert failed(twice(backend, one)) == ("no room", [])
    assert did[-2:] == [("give back", "none", 1, None), ("give back", "a", 1, "key a")]


@backends
def test_a_step_that_timed_out_is_undone_too(backend: str) -> None:
    """Also one for which nobody waited to the end: past a deadline, or that lost a `select`."""

    async def w() -> None:
        with contextlib.suppress(TimeoutError):
            await book.options(timeout=3)("slow")
        with contextlib.suppress(TimeoutError):
            async with durable.timeout(3):
                await book("slow", nights=2)
        await durable.select(first=book("a"), second=book("slow", nights=3))
        await fail("sold out")

    async def main() -> None:
        one = Run(a_workflow(w), bucket=virtual_bucket())
        for _ in range(2):
            assert failed(await one.execute()) == ("sold out", [])

    run(backend, main)
    assert did[4:] == [
        ("give back", "slow", 3, None),
        ("give back", "a", 1, "key a"),
        ("give back", "slow", 2, None),
        ("give back", "slow", 1, None),
    ]


@backends
def test_a_step_that_nobody_knows_the_end_of(backend: str) -> None:
    """A body that began and was cut off by a crash is undone, though its call never runs again."""

    async def w() -> None:
        await book("a")
        await book("b")

    one = Run(a_workflow(w))

    async def main() -> None:
        await one.execute()
        one.forget(list(one.steps())[1])
        one.put_cancel()
        did.clear()
        closing = await one.execute()
        assert isinstance(closing, Finished)
        assert closing.cancelled

    run(backend, main)

    assert did == [("give back", "b", 1, None), ("give back", "a", 1, "key a")]


@backends
def test_an_action_that_fails_keeps_no_other_from_running(backend: str) -> None:
    """It is tried again first; its error becomes a note of the run's."""

    async def refuse(x: int) -> None:
        did.append(("refuse", x, durable.current().attempt))
        raise PermissionError("closed")

    @step(name=f"saga-test refused {backend}", undo=refuse)
    async def refused(x: int) -> None: ...

    async def w() -> None:
        await book("a")
        await refused(1)
        await book("b")
        await fail("sold out")

    one = Run(a_workflow(w))

    _, notes = failed(twice(backend, one))

    (path,) = [path for path in one.steps() if "refused" in path and path.startswith("undo")]
    assert notes == [f"{path.removeprefix('undo/')!r} was not undone: PermissionError: closed"]
    assert did[2:] == [
        ("give back", "b", 1, "key b"),
        ("refuse", 1, 1),
        ("refuse", 1, 2),
        ("refuse", 1, 3),
        ("give back", "a", 1, "key a"),
    ]


@backends
def test_an_action_has_so_long(backend: str) -> None:
    """Each attempt of it is limited by the workflow's clean-up time, or its own."""

    async def hang(x: int) -> None:
        did.append(durable.current().attempt)
        await anyio.sleep_forever()

    @step(name=f"saga-test hung {backend}", undo=hang)
    async def hung(x: int) -> None: ...

    async def w() -> None:
        await book("a")
        await hung(1)
        await fail("sold out")

    one = Run(
        workflow(name=f"saga-test short {backend}", cleanup_timeout=7)(w),
    )

    async def main() -> float:
        await one.execute()
        return anyio.current_time()

    assert 21 <= run(backend, main) < 26
    assert did == [("book", "a"), 1, 2, 3, ("give back", "a", 1, "key a")]


@backends
def test_concurrent_steps(backend: str) -> None:
    """What was begun last is undone first, and branches that a failure closed are undone too."""

    async def late(room: str) -> None:
        await virtual_seconds(1)
        await book(room)

    async def failing() -> None:
        await virtual_seconds(2)
        await fail("sold out")

    async def w() -> None:
        await durable.gather(late("slow"), book("a"), failing())

    one = Run(a_workflow(w))

    assert failed(run(backend, one.execute))[0] == "sold out"
    assert did == [
        ("book", "a"),
        ("book", "slow"),
        ("give back", "slow", 1, None),
        ("give back", "a", 1, "key a"),
    ]


@backends
def test_tasks_of_the_users_are_ended_before(backend: str) -> None:
    """A call that is still open when the function fails goes no further while it is undone."""

    async def w() -> None:
        await book("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(book, "slow")
            await virtual_seconds(1)
            raise ValueError("sold out")

    one = Run(a_workflow(w))

    run(backend, one.execute)

    assert did[-2:] == [("give back", "slow", 1, None), ("give back", "a", 1, "key a")]


@backends
def test_sync_code(backend: str) -> None:
    """Sync workflows, steps and undo actions do the same."""

    def put_away(x: int, result: int | None) -> None:
        did.append(("put away", x, result, threading.current_thread() is threading.main_thread()))

    @step(name=f"saga-test takes {backend}", undo=put_away)
    def takes(x: int) -> int:
        return x * 10

    def w() -> None:
        takes(1)
        takes(x=2)
        raise ValueError("sold out")

    one = Run(a_workflow(w))

    assert failed(run_with_threads(backend, one.execute)) == ("sold out", [])
    assert did == [("put away", 2, 20, False), ("put away", 1, 10, False)]


@backends
@pytest.mark.parametrize("listens", [True, False])
def test_a_thread_that_is_left_behind(
    backend: str, listens: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its step is undone once it has ended, or when it has not for as long as undoing may take."""
    end = threading.Event()

    @step(name=f"saga-test digs {backend} {listens}", undo=lambda: did.append("fills"))
    def digs() -> None:
        did.append("digs")
        while not (end.wait(0.01) or (listens and durable.current().cancelled)):
            pass
        did.append("dug")

    async def breaks() -> None:
        await becomes_true(lambda: bool(did))
        await fail("rain")

    patience = 60 if listens else 0.1  # real seconds, which pass only if nobody listens

    @workflow(name=f"saga-test garden {backend} {listens}", cleanup_timeout=patience)
    async def garden() -> None:
        await durable.gather(digs.call(), breaks())

    one = Run(garden)
    try:
        assert failed(run_with_threads(backend, one.execute)) == ("rain", [])
        assert did == (["digs", "dug", "fills"] if listens else ["digs", "fills"])
        assert ("still works" in caplog.text) is not listens
    finally:
        end.set()


@backends
def test_a_step_as_an_action(backend: str) -> None:
    """A decorated step keeps its name and its options."""

    @step(name=f"saga-test free {backend}", retry=Retry(attempts=1))
    async def free(x: int) -> None:
        did.append(durable.current().attempt)
        raise OSError

    @step(name=f"saga-test took {backend}", undo=free)
    async def took(x: int) -> None: ...

    async def w() -> None:
        await took(1)
        await fail("sold out")

    one = Run(a_workflow(w))

    assert len(failed(twice(backend, one))[1]) == 1
    assert did == [1]
    assert list(one.steps().values())[-1].name == f"saga-test free {backend}"


# -- a cancelled run ------------------------------------------------------------------------------


def cancelled(backend: str, one: Run, *, after: float = 5.0) -> Finished:
    """What a run comes to that is cancelled after some seconds, live and on replay."""

    async def meanwhile(execution: Execution) -> None:
        await virtual_seconds(after)
        execution.cancelling.ask(one.put_cancel())

    async def main() -> Finished:
        live = await one.execute(meanwhile=meanwhile)
        before = list(did)
        assert isinstance(live, Finished)
        replay = await one.execute()
        assert isinstance(replay, Finished)
        assert replay.cancelled == live.cancelled
        assert did == before
        return live

    return run(backend, main)


@backends
def test_a_cancelled_run_is_undone_after_its_own_clean_up(backend: str) -> None:
    """The body is cancelled, the function cleans up, then everything is undone."""

    async def w() -> None:
        await book("a")
        try:
            await book("slow")
        finally:
            await clean(1)

    one = Run(a_workflow(w))

    assert cancelled(backend, one).cancelled
    assert did == [
        ("book", "a"),
        ("book", "slow"),
        ("clean", 1),
        ("give back", "slow", 1, None),
        ("give back", "a", 1, "key a"),
    ]


@backends
@pytest.mark.parametrize("before", ["fails", "cancelled"])
def test_cancelled_while_it_is_undone(backend: str, before: str) -> None:
    """What is under way goes on, to the last action; a run that has failed stays failed."""

    async def take_long(x: int) -> None:
        did.append(("undoing", x))
        await virtual_seconds(10)
        did.append(("undone", x))

    @step(name=f"saga-test long to undo {backend} {before}", undo=take_long)
    async def takes(x: int) -> None: ...

    async def w() -> None:
        await takes(1)
        await takes(2)
        await fail("sold out") if before == "fails" else await book("slow")

    one = Run(a_workflow(w))

    async def meanwhile(execution: Execution) -> None:
        if before == "cancelled":
            await virtual_seconds(5)
            execution.cancelling.ask(one.put_cancel())
        while ("undoing", 2) not in did:
            await virtual_seconds(1)
        execution.cancelling.ask(one.put_cancel())

    async def main() -> None:
        for _ in range(2):
            closing = await one.execute(meanwhile=meanwhile)
            assert isinstance(closing, Finished)
            assert closing.cancelled == (before == "cancelled")
            assert did[-4:] == [("undoing", 2), ("undone", 2), ("undoing", 1), ("undone", 1)]

    run(backend, main)


@backends
def test_cancelled_while_its_registration_is_written(backend: str) -> None:
    """The registration lands, the body never begins, and the action runs for nothing."""

    def late(call: Call) -> Fault | None:
        registers = call.verb == "create" and "/undo/" in call.name and "/steps/" not in call.name
        return Fault("delayed", seconds=10) if registers else None

    async def w() -> None:
        await book("a")

    one = Run(a_workflow(w), faults=late)

    assert cancelled(backend, one).cancelled
    assert did == [("give back", "a", 1, None)]


@backends
def test_clean_up_has_so_long(backend: str) -> None:
    """Then its calls are cancelled too, whatever the function does, and the run is undone."""

    @a_step
    async def endless(x: int) -> None:
        did.append(("endless", x))
        await anyio.sleep_forever()

    async def w() -> None:
        await book("a")
        try:
            await book("slow")
        finally:
            try:
                await endless(1)
            finally:
                await endless(2)

    one = Run(workflow(name=f"saga-test limited {backend}", cleanup_timeout=60)(w))

    async def main() -> float:
        async def meanwhile(execution: Execution) -> None:
            await virtual_seconds(5)
            execution.cancelling.ask(one.put_cancel())

        closing = await one.execute(meanwhile=meanwhile)
        assert isinstance(closing, Finished)
        assert closing.cancelled
        return anyio.current_time()

    assert 64 < run(backend, main) < 67
    assert did == [
        ("book", "a"),
        ("book", "slow"),
        ("endless", 1),
        ("give back", "slow", 1, None),
        ("give back", "a", 1, "key a"),
    ]


@backends
def test_the_limit_is_not_put_off_by_a_crash(backend: str) -> None:
    """It counts from the first cancelled call, whoever recorded that."""

    async def w() -> None:
        try:
            await book("slow")
        finally:
            did.append("cleaning")
            await virtual_seconds(50)
            await clean(1)

    one = Run(workflow(name=f"saga-test twice {backend}", cleanup_timeout=60)(w))

    async def main() -> None:
        one.bucket = virtual_bucket()

        async def meanwhile(execution: Execution) -> None:
            await virtual_seconds(5)
            execution.cancelling.ask(one.put_cancel())
            await virtual_seconds(30)
            from durable.runtime.closing import Stopped

            execution.close(Stopped("lease"))

        await one.execute(meanwhile=meanwhile)
        closing = await one.execute()
        assert isinstance(closing, Finished)
        assert closing.cancelled

    run(backend, main)

    assert did == [
        ("book", "slow"),
        "cleaning",
        "cleaning",
        ("give back", "slow", 1, None),
    ]


@pytest.mark.parametrize("kind", ["waits", "swallows", "asleep"])
@backends
def test_a_function_that_does_not_end_is_cut_short(backend: str, kind: str) -> None:
    """It may wait for anything or swallow everything: the run is cancelled and undone."""

    async def w() -> None:
        await book("a")
        if kind == "asleep":
            await anyio.sleep_forever()
        while True:
            try:
                await book("slow")
            except RunCancelled:
                if kind == "waits":
                    await anyio.sleep_forever()

    one = Run(workflow(name=f"saga-test {kind} {backend}", cleanup_timeout=60)(w))

    closing = cancelled(backend, one)

    assert closing.cancelled
    assert did[-1] == ("give back", "a", 1, "key a")
    assert len(one.steps()) < 300


@backends
def test_a_run_whose_time_is_over_is_undone(backend: str) -> None:
    """Cut short at its deadline, or picked up after it, it fails, and is undone before."""

    async def w() -> None:
        await book("a")
        try:
            await book("slow")
        finally:
            await clean(1)

    async def main() -> None:
        one = Run(a_workflow(w), bucket=virtual_bucket())
        one.deadline = one.bucket.now() + 30
        message, notes = failed(await one.execute())
        assert "deadline" in message
        assert notes == []
        assert did == [
            ("book", "a"),
            ("book", "slow"),
            ("give back", "slow", 1, None),
            ("give back", "a", 1, "key a"),
        ]
        one.forget(*[path for path in one.steps() if path.startswith("undo")])
        did.clear()
        assert failed(await one.execute())[0] == message
        assert did == [("give back", "slow", 1, None), ("give back", "a", 1, "key a")]

    run(backend, main)


@backends
def test_a_registration_that_landed_late_keeps_its_place(backend: str) -> None:
    """A dead owner's says when the step was begun; every later owner goes by it."""

    async def w() -> None:
        await book("a")
        await book("b")
        await fail("sold out")

    paths = [f"saga-test%20book.{i}" for i in (1, 2)]
    one = Run(a_workflow(w))

    def lands_now(call: Call) -> None:
        late = names.undo(RUN, INSTANCE, paths[1])
        if call.verb == "create" and call.name == late and call.nth == 1:
            undo = Undo(paths[1], "saga-test book", Raw(b'{"args":["b"]}'), 0, 7, "late", 0.0)
            one.bucket.create(late, records.encode(undo), {"nonce": "late"}, True)

    one.faults = lands_now

    run(backend, one.execute)

    assert did[2:] == [("give back", "a", 1, "key a"), ("give back", "b", 1, "key b")]


# -- crashes --------------------------------------------------------------------------------------


@step(name="saga-test leave")
async def leave() -> None:
    raise ValueError("sold out")


@workflow(name="saga-test saga")
async def saga() -> None:
    await durable.gather(book("a"), book("b"))
    await book("c")
    await leave()


@pytest.mark.anyio
@pytest.mark.parametrize("applied", [False, True], ids=["unsent", "applied"])
async def test_whatever_call_its_worker_dies_at(applied: bool) -> None:
    """The run fails alike, and everything is undone once in the same order, or begun so again."""
    at = 0
    while True:
        at += 1
        did.clear()
        async with world() as w:
            death = DiesAt(at, applied)
            assert await w.survive("r", saga, death) == "sold out"

            facts = await w.facts("r")
            registered = sorted(facts.undos, key=lambda u: (u.epoch, u.n), reverse=True)
            recorded = [s for s in facts.journal().order if s.kind == "undo"]
            assert [s.path for s in recorded] == [f"undo/{u.path}" for u in registered]
            rooms = [entry[1] for entry in did if entry[0] == "give back"]
            assert len(rooms) <= len(registered) + 1  # one may have been cut off by the crash
            assert without_repeats(rooms)[0] == "c", f"died at call {at}"
            assert sorted(without_repeats(rooms)) == ["a", "b", "c"]
        if not death.died:
            break

    assert at > 20


def without_repeats(entries: list[Any]) -> list[Any]:
    return [entry for i, entry in enumerate(entries) if entry not in entries[:i]]


@pytest.mark.anyio
async def test_a_worker_that_does_not_know_the_step(caplog: Any) -> None:
    """What cannot be undone is said; the rest is undone."""
    async with world() as w:
        await w.start("r", saga)
        first = await w.process()
        await w.until(lambda: ("book", "c") in did)
        first.kill()
        facts = await w.facts("r")
        undo = facts.undos[0]
        name = names.undo("r", facts.start.instance, "gone.1")
        gone = type(undo)("gone.1", "saga-test gone", undo.input, 1, 9, "n", 0.0)
        await w.store.create(name, records.encode(gone), nonce="n")
        await w.process()

        assert await w.result("r") == "sold out"
        failure = (await w.facts("r")).result.failure  # type: ignore[union-attr]  # a failed run has both
        assert failure is not None
        (note,) = failure.notes
        assert note == (
            "'gone.1' was not undone: LookupError: "
            "no step 'saga-test gone' with an undo action is defined here"
        )


# -- a run that needs attention -------------------------------------------------------------------


@durable.step(name="saga-test kill", attempts=1)
async def kill() -> None:
    did.append(("kill", ""))
    await anyio.sleep_forever()


@durable.workflow(name="saga-test deadly")
async def deadly() -> None:
    await book("a")
    await kill()


@pytest.mark.anyio
async def test_a_run_that_kills_its_process_is_undone_when_it_is_cancelled() -> None:
    """Not before: it is not over, and the next code may bring it to its end."""
    async with world() as w:
        await w.start("r", deadly)
        while not w.hints("attention/"):
            process, before = await w.process(), did.count(("kill", ""))
            while did.count(("kill", "")) == before and not w.hints("attention/"):
                await virtual_seconds(1)
            if not w.hints("attention/"):
                process.kill()
        assert did == [("book", "a"), *[("kill", "")] * did.count(("kill", ""))]
        tried = len(did)

        handle = Handle[None](w.store, "r", (await w.facts("r")).start)
        assert await handle.cancel(wait=True, timeout=600) == "cancelled"

        assert did[tried:] == [("give back", "a", 1, "key a")]


@pytest.mark.anyio
async def test_a_damaged_run_is_undone_once_it_can_be_read() -> None:
    """Cancelled before, it still needs attention: what it did is not known for certain."""
    async with world() as w:
        start = await w.start("r", deadly)
        first = await w.process()
        await w.until(lambda: ("kill", "") in did)
        first.kill()
        foreign = names.step("r", start.instance, "strange.1")
        written = await w.store.create(foreign, b"no record", nonce="n")
        await w.process()
        assert (await w.attention("r")).reason == "corrupt"

        handle = Handle[None](w.store, "r", start)
        with pytest.raises(NeedsAttention):
            await handle.cancel(wait=True, timeout=600)
        assert did == [("book", "a"), ("kill", "")]

        assert not isinstance(written, Refused)
        await w.store.delete(foreign, written.generation)
        await Client(w.store).retry("r")
        assert (await handle.cancel(wait=True, timeout=600)) == "cancelled"
        assert did[2:] == [("give back", "a", 1, "key a")]


# -- at decoration, and at the call ----------------------------------------------------------------


def test_an_action_takes_what_the_step_takes() -> None:
    """One that cannot be called with the step's arguments is refused where it is written."""

    async def other(guest: str) -> None: ...

    with pytest.raises(InvalidDefinition, match="does not take the step's arguments"):
        step(name="saga-test wrong", undo=other)(book.definition.fn)

    def generator(room: str, nights: int = 1) -> Any:
        yield

    with pytest.raises(InvalidDefinition, match="generator"):
        step(name="saga-test wrong", undo=generator)(book.definition.fn)


@backends
def test_arguments_that_cannot_be_stored(backend: str) -> None:
    """They are refused at the call, before anything is done."""

    async def w() -> None:
        await book(object())  # type: ignore[arg-type]  # wrong on purpose

    one = Run(a_workflow(w))

    closing = run(backend, one.execute)

    assert isinstance(closing, Finished)
    assert closing.failure is not None
    assert closing.failure.type == f"{InvalidArguments.__module__}.{InvalidArguments.__qualname__}"
    assert did == []
    assert one.bucket.read(names.undo(RUN, INSTANCE, "saga-test book.1")) is None
