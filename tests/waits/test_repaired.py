"""Runs that wait, and their children, when somebody retries, restarts, forks or purges them."""

from __future__ import annotations

from typing import Any

import pytest

from durable import gather, sleep, wait_event, workflow
from durable.client import Handle, archives
from durable.client.purging import purge
from durable.client.repair import Repair
from durable.errors import ChildGone
from durable.store import Store
from tests.client.dying import MODES, Mode, dies
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import ONCE, a_step, a_workflow
from tests.runtime.world import HOUR, World, world
from tests.virtual_time import virtual_seconds
from tests.waits.long import DAY, parked, pass_time

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

ran: list[str] = []
broken: set[str] = set()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()
    broken.clear()


@a_step(retry=ONCE)
async def _does(what: str) -> str:
    ran.append(what)
    if what in broken:
        raise LookupError(f"{what} is broken")
    return what


@a_workflow
async def _waits_for_ever() -> str:
    return await wait_event("go", str)


@a_workflow
async def _fragile(what: str) -> str:
    return await _does(what)


class _Repair(Repair):
    def __init__(self, store: Store) -> None:
        self.store = store


def _children(w: World) -> list[str]:
    return sorted({n.split("/")[1] for n in w.there() if n.startswith("runs/child-")})


async def _handle(w: World, run: str) -> Handle[Any]:
    return Handle(w.store, run, (await w.facts(run)).start)


def test_parked_children_of_a_purged_run_are_cancelled(backend: str) -> None:
    """Nothing else would wake them: they wait for what nobody will send."""

    @a_workflow
    async def parent() -> str:
        child = await _waits_for_ever.start()
        return await child.result()

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", parent)
            await parked(w)
            (child,) = _children(w)
            await parked(w, child)

            await purge(w.store, "r", force=True)

            assert "its parent 'r' is over" in await w.result(child)

    run(backend, main)


def test_waiters_of_a_purged_singleton_go_on(backend: str) -> None:
    """The lock of a run that is gone is free, and whoever waits for it is told."""

    @workflow(name="purged singleton", singleton="one", on_conflict="wait")
    async def only(event: str) -> str:
        return await wait_event(event, str) if event else "went on"

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", only, "go")
            await parked(w)
            await w.start("second", only, "")
            await parked(w, "second")

            await purge(w.store, "r", force=True)

            assert await w.result("second") == "went on"

    run(backend, main)


def test_a_retried_parent_starts_its_failed_child_anew(backend: str) -> None:
    """Else it would read the old failure for ever."""

    @a_workflow
    async def parent() -> tuple[str, str]:
        good = await _fragile.start("good")
        bad = await _fragile.start("bad")
        return await good.result(), await bad.result()

    async def main() -> None:
        async with world() as w:
            broken.add("bad")
            await w.process()
            await w.start("r", parent)
            assert "bad is broken" in await w.result("r")
            broken.clear()

            await _Repair(w.store).retry("r")

            assert await w.result("r") == ("good", "bad")
            assert sorted(ran) == ["bad", "bad", "good"]

    run(backend, main)


def test_a_retried_parent_starts_its_cancelled_child_anew(backend: str) -> None:
    """A child that its parent's failure cancelled has no outcome of its own."""

    @a_workflow
    async def slow() -> str:
        await sleep(60)
        return "slow"

    @a_workflow
    async def parent() -> str:
        child = await slow.start()
        await _does("between")
        return await child.result()

    async def main() -> None:
        async with world() as w:
            broken.add("between")
            await w.process()
            await w.start("r", parent)
            assert "between is broken" in await w.result("r")
            broken.clear()

            await _Repair(w.store).retry("r")

            assert await w.result("r") == "slow"

    run(backend, main)


def test_a_fork_does_not_wait_for_another_runs_child(backend: str) -> None:
    """The end of that child wakes its own parent alone; the fork starts one of its own."""

    @a_workflow
    async def parent() -> str:
        child = await _waits_for_ever.start()
        await _does("then")
        return await child.result()

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", parent)
            await parked(w)
            (first,) = _children(w)

            await _Repair(w.store).fork("r", "_does", new_id="f")
            await parked(w, "f")
            for child in _children(w):
                await (await _handle(w, child)).send("go", "first" if child == first else "second")

            assert await w.result("r") == "first"
            assert await w.result("f") == "second"

    run(backend, main)


def test_a_fork_of_a_run_of_several_owners_keeps_their_order(backend: str) -> None:
    """What an earlier owner recorded is handed over first in the fork too."""

    @a_workflow
    async def flow() -> list[str]:
        order: list[str] = []

        async def early() -> None:
            order.append(await _does("early"))

        async def late() -> None:
            await sleep(DAY)
            order.append(await _does("late"))

        await gather(late(), early())
        await _does("last")
        return order

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await parked(w)
            await pass_time(w, process, DAY)
            assert await w.result("r") == ["early", "late"]

            await _Repair(w.store).fork("r", "_does.1", new_id="f")

            assert await w.result("f") == ["early", "late"]
            assert ran == ["early", "late", "last", "last"]

    run(backend, main)


def test_a_fork_sleeps_after_its_own_past(backend: str) -> None:
    """A wait that the old run began behind the fork has a deadline of its own in the new one."""

    @a_workflow
    async def flow() -> str:
        await _does("a")
        await _does("b")
        await sleep(2 * DAY)
        return "over"

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", flow)
            await parked(w)
            process.worker.stop()
            await virtual_seconds(3 * DAY)
            begun = w.store.now()
            await _Repair(w.store).fork("r", "_does.2", new_id="f")
            await w.process()
            await w.until(lambda: ran.count("b") == 2)
            await parked(w, "f")

            wait = (await w.facts("f")).waits[-1]

            assert wait.due is not None
            assert wait.due >= begun + 2 * DAY

    run(backend, main)


def test_exported_events_are_in_the_order_of_their_sending(backend: str) -> None:
    """Whoever imports the run creates them in that order, which is not the order of their keys."""

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", _waits_for_ever)
            await parked(w)
            handle = await _handle(w, "r")
            for key in "zya":
                await handle.send("other", key, key=key)
                await virtual_seconds(1)

            archive = archives.read(await archives.export(w.store, "r"))

            events = [one.name for one in archive.objects if one.name.startswith("events/")]
            assert events == ["events/other/z", "events/other/y", "events/other/a"]

    run(backend, main)


def test_children_of_a_restarted_run_are_cancelled(backend: str) -> None:
    """Those that the old instance left parked would be nobody's; the new one has its own."""
    asks: list[str] = ["a"]

    @a_workflow
    async def parent() -> str:
        child = await _waits_for_ever.start()
        await _does(asks[0])
        await sleep(60)
        await (_does(asks[0]) if len(asks) == 1 else _drifts())
        return await child.result()

    @a_step
    async def _drifts() -> str:
        return ""

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", parent)
            await parked(w)
            (child,) = _children(w)
            asks[0] = "b"
            await pass_time(w, process, 60)
            await w.attention("r")
            await parked(w, child)

            await _Repair(w.store).restart("r")

            assert "its parent 'r' is over" in await w.result(child)
            await w.until(lambda: len(_children(w)) == 2)

    run(backend, main)


def test_a_retried_singleton_waits_for_its_lock_anew(backend: str) -> None:
    """It had the lock for its old instance alone, and as long a patience as at first."""

    @workflow(name="retried singleton", singleton="two", on_conflict="wait", lock_ttl=DAY)
    async def only(what: str) -> str:
        return await _does(what) if what != "wait" else await wait_event("go", str)

    async def main() -> None:
        async with world() as w:
            broken.add("x")
            await w.process()
            await w.start("r", only, "x")
            await w.result("r")
            await w.start("other", only, "wait")
            await parked(w, "other")

            await _Repair(w.store).retry("r")

            await parked(w)
            assert ran == ["x"]
            broken.clear()
            await (await _handle(w, "other")).send("go", "x")
            assert await w.result("r") == "x"

    run(backend, main)


def test_a_skipped_wait_has_one_outcome(backend: str) -> None:
    """What a person gives it competes with its event for the same place: one of them counts."""

    @a_workflow
    async def flow() -> list[str]:
        first = await wait_event("go", str)
        await _does("then")
        return [first, await wait_event("go", str)]

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await w.until(lambda: bool(w.hints("runs/r/")[1:]))

            await _Repair(w.store).skip("r", "event-go.1", "by hand")
            await (await _handle(w, "r")).send("go", "sent")

            assert await w.result("r") == ["by hand", "sent"]
            outcomes = (await w.facts("r")).outcomes()
            assert len(outcomes) == len({step.path for step in outcomes})

    run(backend, main)


def test_a_skipped_wait_goes_on_where_it_stands(backend: str) -> None:
    """Also if nothing else ever happens to the run."""

    @a_workflow
    async def flow() -> str:
        return await wait_event("go", str)

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            await virtual_seconds(3)

            await _Repair(w.store).skip("r", "event-go.1", "by hand")

            assert await w.result("r") == "by hand"

    run(backend, main)


def test_a_restarted_parent_replaces_a_child_of_a_given_id(backend: str) -> None:
    """The run of that id is the child of the same call of an older instance, and over."""

    @a_workflow
    async def parent() -> str:
        child = await _fragile.options(id="given").start("x")
        return await child.result()

    async def main() -> None:
        async with world() as w:
            broken.add("x")
            await w.process()
            await w.start("r", parent)
            assert "x is broken" in await w.result("r")
            broken.clear()

            await _Repair(w.store).retry("r")

            assert await w.result("r") == "x"
            await _Repair(w.store).restart("r")
            assert await w.result("r") == "x"
            assert ran == ["x", "x", "x"]

    run(backend, main)


@a_workflow
async def _slow_to_clean_up() -> str:
    try:
        return await wait_event("go", str)
    finally:
        await _does("cleans up")


@pytest.mark.parametrize("verb", ["retry", "restart"])
def test_an_owned_child_of_a_given_id_ends_before_it_is_started_anew(
    backend: str, verb: str
) -> None:
    """It was cancelled with its parent's old instance, and may clean up as any other."""

    @a_workflow
    async def parent() -> str:
        child = await _slow_to_clean_up.options(id="given").start()
        await sleep(60)
        await _does("between")
        return await child.result()

    async def main() -> None:
        async with world() as w:
            broken.add("between")
            process = await w.process()
            await w.start("r", parent)
            assert "between is broken" in await w.result("r")
            process.kill()
            old = await _handle(w, "given")
            assert f"runs/given/{old.instance}/result" not in w.there()
            broken.clear()

            await getattr(_Repair(w.store), verb)("r")
            await w.process()

            while (child := await _handle(w, "given")).instance == old.instance:
                await virtual_seconds(1)
            assert str(await old.status()) == "cancelled"
            await child.send("go", "went")
            assert await w.result("r") == "went"
            assert sorted(ran) == ["between", "between", "cleans up", "cleans up"]

    run(backend, main)


@pytest.mark.parametrize("verb", ["retry", "restart"])
def test_a_detached_child_of_a_given_id_is_the_child_again(backend: str, verb: str) -> None:
    """It went on when its parent failed; the new instance waits for that very run."""

    @a_workflow
    async def parent() -> str:
        child = await _waits_for_ever.options(id="given", detached=True).start()
        await _does("between")
        return await child.result()

    async def main() -> None:
        async with world() as w:
            broken.add("between")
            await w.process()
            await w.start("r", parent)
            assert "between is broken" in await w.result("r")
            broken.clear()
            child = await _handle(w, "given")

            await getattr(_Repair(w.store), verb)("r")
            await w.until(lambda: ran == ["between", "between"])
            await parked(w)
            await child.send("go", "went")

            assert await w.result("r") == "went"
            assert (await _handle(w, "given")).instance == child.instance

    run(backend, main)


def test_a_retried_parent_waits_on_for_its_detached_child(backend: str) -> None:
    """Its start is kept, whatever id it has; its end wakes the instance that waits now."""

    @a_workflow
    async def parent() -> str:
        child = await _waits_for_ever.options(detached=True).start()
        await _does("between")
        return await child.result()

    async def main() -> None:
        async with world() as w:
            broken.add("between")
            await w.process()
            await w.start("r", parent)
            assert "between is broken" in await w.result("r")
            broken.clear()
            (child,) = _children(w)

            await _Repair(w.store).retry("r")
            await w.until(lambda: ran == ["between", "between"])
            await parked(w)
            await (await _handle(w, child)).send("go", "went")

            assert await w.result("r") == "went"
            assert _children(w) == [child]

    run(backend, main)


@pytest.mark.parametrize("mode", MODES)
def test_whoever_restarts_may_die_and_no_child_is_forgotten(backend: str, mode: Mode) -> None:
    """Asked again, the restart also does what follows it: nobody else would cancel the child."""

    @a_workflow
    async def parent() -> str:
        await _waits_for_ever.start()
        await sleep(60)
        return await _does("x")

    async def restarted(at: int) -> bool:
        async with world() as w:
            broken.add("x")
            process = await w.process()
            await w.start("r", parent)
            assert "x is broken" in await w.result("r")
            process.kill()  # before it has seen to the child
            (child,) = _children(w)
            broken.clear()

            died = await dies(
                w.bucket, mode, at, lambda store: _Repair(store).restart("r"), system=w.system
            )
            await _Repair(w.store).restart("r")

            await w.process()
            assert await w.result("r") == "x"
            assert "its parent 'r' is over" in await w.result(child)
            return died

    async def main() -> None:
        deaths = 0
        while await restarted(deaths):
            deaths += 1
        assert deaths > 8

    run(backend, main)


def test_a_child_is_retried_and_forked_by_itself(backend: str) -> None:
    """Though its parent is over: a person wants it, so it is nobody's child any more."""

    @a_workflow
    async def parent() -> str:
        child = await _fragile.options(id="child").start("x")
        return await child.result()

    async def main() -> None:
        async with world() as w:
            broken.add("x")
            await w.process()
            await w.start("r", parent)
            assert "x is broken" in await w.result("r")
            broken.clear()

            await _Repair(w.store).fork("child", "_does.1", new_id="f")
            await _Repair(w.store).retry("child")

            assert await w.result("child") == "x"
            assert await w.result("f") == "x"

    run(backend, main)


def test_a_parent_learns_that_its_child_was_restarted(backend: str) -> None:
    """The end of the instance that it waits for will never come."""
    drifts: list[bool] = []

    @a_workflow
    async def stuck() -> str:
        await _does("a" if not drifts else "b")
        await sleep(60 if not drifts else 2 * HOUR)
        return await _does("c")

    @a_workflow
    async def parent() -> str:
        child = await stuck.options(id="child").start()
        try:
            return await child.result()
        except ChildGone:
            return "gone"

    async def main() -> None:
        async with world() as w:
            process = await w.process()
            await w.start("r", parent)
            await parked(w)
            await parked(w, "child")
            drifts.append(True)
            process = await pass_time(w, process, 60)
            await w.attention("child")

            await _Repair(w.store).restart("child")

            assert await w.result("r") == "gone"

    run(backend, main)


def test_a_fork_takes_back_only_what_it_did_itself(backend: str) -> None:
    """What it shares with a run that has completed is that run's."""

    @a_step
    async def refund(what: str) -> None:
        ran.append(f"refund {what}")

    @a_step(retry=ONCE, undo=refund)
    async def charge(what: str) -> str:
        return await _does.call(what)

    @a_workflow
    async def flow() -> str:
        await charge("shared")
        await charge("own")
        return await _does("last")

    async def main() -> None:
        async with world() as w:
            await w.process()
            await w.start("r", flow)
            assert await w.result("r") == "last"
            broken.add("last")

            await _Repair(w.store).fork("r", "charge.2", new_id="f")

            assert "last is broken" in await w.result("f")
            assert ran == ["shared", "own", "last", "own", "last", "refund own"]
            await _Repair(w.store).fork("f", "_does.1", new_id="g")
            assert "last is broken" in await w.result("g")
            assert ran[6:] == ["own", "last", "refund own"]

    run(backend, main)
