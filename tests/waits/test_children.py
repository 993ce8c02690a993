"""Child workflows: runs of their own, waited for without holding a place."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from durable import gather, map, select, sleep
from durable.client import Handle
from durable.client.purging import purge
from durable.errors import ChildCancelled, ChildGone, Conflict, RunFailed
from durable.protocol import names, records
from durable.runtime import markers
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import a_step, a_workflow
from tests.runtime.world import World, world
from tests.virtual_time import virtual_seconds
from tests.waits.long import concerns, parked

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@a_step
async def _work(seconds: float) -> float:
    await virtual_seconds(seconds)
    return seconds


@a_workflow
async def _child(seconds: float) -> float:
    return await _work(seconds)


@a_workflow
async def _failing() -> None:
    raise LookupError("no such thing")


@a_workflow
async def _deep(depth: int) -> int:
    if depth == 0:
        return 0
    child = await _deep.start(depth - 1)
    return 1 + await child.result()


async def _handle(w: World, run: str) -> Handle[Any]:
    return Handle(w.store, run, (await w.facts(run)).start)


def _children(w: World) -> list[str]:
    return sorted({n.split("/")[1] for n in w.there() if n.startswith("runs/child-")})


def test_parent_is_parked_while_its_child_works(backend: str) -> None:
    """A worker with one place carries both, one after the other."""

    @a_workflow
    async def parent() -> float:
        child = await _child.start(30.0)
        return 2 * await child.result()

    async def main() -> None:
        async with world() as w:
            await w.process(concurrency=1)
            await w.start("r", parent)
            await parked(w)
            (child,) = _children(w)
            status = await (await _handle(w, "r")).status()
            assert (status, status.reason) == ("parked", f"for child run {child!r}")

            assert await w.result("r") == 60
            assert (await w.facts(child)).start.parent.path.startswith("start-")  # type: ignore[union-attr]  # it is there
            await w.until(lambda: not [n for n in w.there() if n.startswith(("timers/", "live/"))])

    run(backend, main)


def test_many_children_end_at_one_instant(backend: str) -> None:
    """No wake-up is lost, in place or parked, and each result reaches its wait."""

    @a_workflow
    async def parent(seconds: float) -> list[float]:
        async def one(_: int) -> float:
            child = await _child.start(seconds)
            return await child.result()

        return await map(one, range(20))

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.process()
            await w.start("r", parent, 3.0)
            await w.start("q", parent, 40.0)

            assert await w.result("r") == [3.0] * 20
            assert await w.result("q") == [40.0] * 20
            assert len(_children(w)) == 40

    run(backend, main)


def test_a_tower_of_children_with_one_place(backend: str) -> None:
    """Each parent gives its place up for its child: no depth is a deadlock."""

    async def main() -> None:
        async with world() as w:
            await w.process(concurrency=1)
            await w.start("r", _deep, 30)
            assert await w.result("r") == 30

    run(backend, main)


def test_failed_child_is_an_error_of_its_parent(backend: str) -> None:
    """The parent catches it, with the child's error as the cause."""

    @a_workflow
    async def parent() -> list[str]:
        child = await _failing.start()
        try:
            await child.result()
        except RunFailed as e:
            return [type(e).__name__, str(e.__cause__), type(e.__cause__).__name__]
        return []

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", parent)
            assert await w.result("r") == ["RunFailed", "no such thing", "LookupError"]

    run(backend, main)


def test_cancelled_and_purged_children(backend: str) -> None:
    """B79: a child that is cancelled, or is not there any more, reaches the parent as an error."""

    @a_workflow
    async def parent() -> list[str]:
        seen = []
        for _ in range(2):
            child = await _child.start(1000.0)
            try:
                await child.result()
            except RunFailed as e:
                seen.append(type(e).__name__)
        return seen

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", parent)
            await w.until(lambda: len(_children(w)) == 1)
            (first,) = _children(w)
            await (await _handle(w, first)).cancel()
            await w.until(lambda: len(_children(w)) == 2)
            (second,) = {*_children(w)} - {first}
            await w.until(lambda: second in process.worker.runners)
            await parked(w)
            await purge(w.store, second, force=True)

            assert await w.result("r") == [ChildCancelled.__name__, ChildGone.__name__]

    run(backend, main)


def test_id_of_another_run_is_refused(backend: str) -> None:
    """B79: a child that is rejected is an error that the parent can catch."""

    @a_workflow
    async def parent() -> str:
        try:
            await _child.options(id="taken").start(1.0)
        except Conflict as e:
            return e.message.split(" and")[0]
        return "started"

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("taken", _child, 1.0)
            await w.start("r", parent)
            assert await w.result("r") == "run 'taken' exists"

    run(backend, main)


@pytest.mark.parametrize("alone", [True, False])
def test_crash_between_start_and_record(backend: str, alone: bool) -> None:
    """B80: at whatever write of the parent's run its worker dies, there is one child.

    The child is over before another worker has the parent, or both wait for somebody to come.
    """

    @a_workflow
    async def parent() -> float:
        child = await _child.start(5.0)
        return await child.result()

    async def scenario(crash_at: int) -> bool:
        async with world() as w:
            process = await w.process()
            written = 0

            def dies(call: Any) -> None:
                nonlocal written
                if call.verb in {"create", "replace"} and (
                    concerns(call.name) or "child-" in call.name
                ):
                    written += 1
                    if written == crash_at:
                        process.kill()

            process.backend.faults = dies  # type: ignore[attr-defined]  # the store of a worker of the test
            await w.start("r", parent)
            with anyio.move_on_after(60):
                await process.gone.wait()
            if alone:
                await virtual_seconds(60)
            await w.process()  # carries the child at once, the parent once its lease has run out

            assert await w.result("r") == 5.0
            assert len(_children(w)) == 1
            return written >= crash_at

    async def main() -> None:
        crash_at = 1
        while await scenario(crash_at):
            crash_at += 1
        assert crash_at > 8

    run(backend, main)


def test_owned_children_end_with_their_parent(backend: str) -> None:
    """An owned child is cancelled when its parent is over; a detached one goes on."""

    @a_workflow
    async def parent() -> list[str]:
        owned = await _child.start(500.0)
        free = await _child.options(detached=True, id="free").start(500.0)
        return [owned.id, free.id]

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", parent)
            owned, free = await w.result("r")

            assert await w.result(owned) == f"run {owned!r} was cancelled: its parent 'r' is over"
            assert await w.result(free) == 500

    run(backend, main)


def test_cancelling_a_parent_reaches_its_child(backend: str) -> None:
    """The parent's wait raises; the child that it owned is cancelled too."""

    @a_workflow
    async def parent() -> float:
        child = await _child.start(5000.0)
        return await child.result()

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", parent)
            await parked(w)
            (child,) = _children(w)
            await (await _handle(w, "r")).cancel()

            assert await w.result("r") == "run 'r' was cancelled"
            assert "its parent 'r' is over" in await w.result(child)

    run(backend, main)


def test_a_child_that_its_parent_never_knew_of(backend: str) -> None:
    """Cancelled at whatever write its worker dies, a parent leaves no child that goes on."""

    @a_workflow
    async def parent() -> float:
        child = await _child.start(5000.0)
        return await child.result()

    async def scenario(crash_at: int) -> bool:
        async with world() as w:
            process = await w.process()
            written = 0

            def dies(call: Any) -> None:
                nonlocal written
                if call.verb in {"create", "replace"} and (
                    concerns(call.name) or "child-" in call.name
                ):
                    written += 1
                    if written == crash_at:
                        process.kill()

            process.backend.faults = dies  # type: ignore[attr-defined]  # in memory it has
            await w.start("r", parent)
            await virtual_seconds(60)
            await (await _handle(w, "r")).cancel()
            await w.process()

            assert await w.result("r") == "run 'r' was cancelled"
            for child in _children(w):
                assert "its parent 'r' is over" in await w.result(child), crash_at
            return written >= crash_at

    async def main() -> None:
        crash_at = 1
        while await scenario(crash_at):
            crash_at += 1
        assert crash_at > 4

    run(backend, main)


def test_a_child_that_comes_after_its_parents_end(backend: str) -> None:
    """The child of a zombie, started late, is cancelled before its first step."""

    @a_workflow
    async def parent() -> str:
        child = await _child.start(1.0)
        await child.result()
        return child.id

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", parent)
            child = await w.result("r")
            facts = await w.facts(child)
            late = msgspec.structs.replace(facts.start, instance="late", nonce="late")
            await w.until(lambda: not [name for name in w.there() if name.startswith("live/")])
            process.kill()
            stored = await w.store.read(names.start(child))
            assert stored is not None
            await w.store.delete(stored.name, stored.generation)
            await w.store.create(stored.name, records.encode(late), nonce="late")
            await markers.create(w.store, markers.for_start(child, late))
            await w.process()

            assert "its parent 'r' is over" in await w.result(child)
            assert {s.outcome for s in (await w.facts(child)).steps} <= {"cancelled"}

    run(backend, main)


def test_children_in_a_select(backend: str) -> None:
    """The first child, or a deadline, wins; the losers are the parent's still."""

    @a_workflow
    async def parent() -> list[Any]:
        fast, slow = await gather(_child.start(20.0), _child.start(900.0))
        name, value = await select(fast=fast.result(), slow=slow.result(), late=sleep("1h"))
        return [name, value]

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", parent)
            assert await w.result("r") == ["fast", 20.0]

    run(backend, main)
