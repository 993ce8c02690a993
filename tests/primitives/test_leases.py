"""Leases on virtual time: one holder at a time, epochs that only rise, states that lose nothing."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from durable.errors import (
    InvalidArguments,
    InvalidId,
    LeaseLost,
    StoreUnavailable,
    UsageError,
)
from durable.leases import Lease, LeaseEntry, Refuse, Taken
from durable.protocol.durations import Duration
from durable.protocol.leases import Terms
from durable.protocol.primitives import KEEP
from durable.store.memory import Bucket, Call, Fault
from tests.primitives.world import HOUR, Process, World, lease, once
from tests.runtime.clocks import BACKENDS, virtual
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

TTL = 20.0  # renewed every 6.67 s, trusted for 18 s, takeable after 22 s
MARGIN = 2.0


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


async def seconds(action: Callable[[], Any]) -> float:
    began = anyio.current_time()
    await action()
    return anyio.current_time() - began


# -- holding and taking ---------------------------------------------------------------------------


async def test_one_holder_at_a_time(world: World) -> None:
    """The second one is told who holds it; after the release it gets it, with the next epoch."""
    async with world.process() as a, world.process() as b:
        first = await lease(a, label="a")
        taken = await b.client.lease("job", label="b")
        await first.release()
        second = await lease(b, label="b")

        assert isinstance(taken, Taken)
        assert not taken
        assert (taken.by.label, taken.by.holder) == ("a", first.holder)
        assert (taken.by.status, taken.by.epoch) == ("held", 1)
        assert (first.epoch, second.epoch) == (1, 2)
        assert (first.held, second.held) == (False, True)
        assert first.holder != second.holder
        assert bool(second)


async def test_it_is_renewed_in_the_background(world: World) -> None:
    """For an hour nobody else gets it, at one write every third of the ttl."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a, ttl=TTL)
        before = world.writes()
        with anyio.move_on_after(HOUR):
            while True:
                await virtual_seconds(10)
                assert mine.held
                assert not await b.client.lease("job")

        assert world.writes() - before == pytest.approx(HOUR / (TTL / 3), abs=2)


async def test_the_lease_of_the_dead_is_taken_after_ttl_and_margin(world: World) -> None:
    """Not a second earlier, and with a higher epoch."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a, ttl=TTL)
        a.cut_off()
        await virtual_seconds(TTL + MARGIN - 0.1)
        early = await b.client.lease("job")
        entry = await b.client.leases.get("job")
        await virtual_seconds(0.2)
        late = await lease(b)

        assert isinstance(early, Taken)
        assert entry is not None
        assert entry.status == "held"
        assert late.epoch == mine.epoch + 1
        assert not mine.held


async def test_trust_ends_before_others_may_take_it(world: World) -> None:
    """Two owners' ideas of holding it never overlap, however the answers come."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a, ttl=TTL)
        a.fault = lambda call: Fault("slow_reply", seconds=60)
        other: Lease | Taken | Refuse | None = None
        with anyio.fail_after(HOUR):
            while not other:
                other = await b.client.lease("job", ttl=TTL)
                assert not (other and mine.held)
                await virtual_seconds(0.25)
        assert mine.lost


async def test_the_stored_ttl_decides(world: World) -> None:
    """Who comes with a short ttl of their own waits for the holder's long one."""
    async with world.process() as a, world.process() as b:
        await lease(a, ttl=120.0)
        a.cut_off()
        await virtual_seconds(130)
        early = await b.client.lease("job", ttl=12.0)
        await virtual_seconds(3)

        assert isinstance(early, Taken)
        assert await b.client.lease("job", ttl=12.0)


async def test_of_many_that_want_it_one_gets_it(world: World) -> None:
    """Sixteen at the same moment, free or expired: one holder, and one epoch more."""
    got: list[Any] = []

    async def want(process: Process) -> None:
        got.append(await process.client.lease("job", ttl=TTL))

    async def all_at_once(processes: list[Process]) -> list[int]:
        got.clear()
        async with anyio.create_task_group() as tasks:
            for process in processes:
                tasks.start_soon(want, process)
        return [held.epoch for held in got if held]

    async with contextlib.AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(world.process()) for _ in range(16)]
        first = await all_at_once(processes)
        for process in processes:
            process.client._holder.close()
        await virtual_seconds(TTL + MARGIN + 0.1)
        second = await all_at_once(processes)

        assert (first, second) == ([1], [2])


async def test_epochs_rise_over_release_expiry_and_attach(world: World) -> None:
    """Every change of holder is a higher epoch; a hand-over is none."""
    epochs = []
    async with world.process() as a:
        for _ in range(3):
            held = await lease(a)
            epochs.append(held.epoch)
            await held.release()
        held = await lease(a)
        token = await held.hand_over()
        held = await a.client.leases.attach("job", token)
        epochs.append(held.epoch)
        a.client._holder.close()
        await virtual_seconds(30)
        epochs.append((await lease(a)).epoch)

    assert epochs == [1, 2, 3, 4, 5]


async def test_another_boot_of_the_machine_means_dead(world: World) -> None:
    """Where the store's time is a machine's, its reboot frees what was held before."""
    async with world.process() as a, world.process() as b:
        a.client.store.backend.boot = "boot-1"
        b.client.store.backend.boot = "boot-2"
        await lease(a)
        assert (await lease(b)).epoch == 2


# -- losing it ------------------------------------------------------------------------------------


async def test_a_lost_lease_writes_nothing_more(world: World) -> None:
    """Whoever slept through a take-over learns it at the next call, and changes nothing."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a, ttl=TTL)
        a.cut_off()
        await virtual_seconds(30)
        theirs = await lease(b, state_fn=lambda old: {"by": "b"})
        a.fault = lambda call: None
        before = world.record("job")

        assert "not renewed in time" in mine.lost
        for call in (mine.renew, mine.release, mine.hand_over, lambda: mine.update_state({})):
            with pytest.raises(LeaseLost, match="'job'"):
                await call()
        assert world.record("job") == before
        assert theirs.held


async def test_a_machine_that_slept_goes_on_if_nobody_took_it(world: World) -> None:
    """Its clock jumped past the deadline: one more renewal, and it holds it again."""
    async with world.process() as a:
        mine = await lease(a, ttl=TTL)
        a.slept += 100
        a.fault = once("replace", Fault("slow_reply", seconds=1))
        asleep = mine.held
        await virtual_seconds(5)

        assert not asleep
        assert mine.held
        assert not mine.lost


async def test_a_machine_that_slept_has_lost_it_if_somebody_took_it(world: World) -> None:
    """The one renewal finds the new holder."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a, ttl=TTL)
        awake = anyio.Event()
        real = a.client.store.backend

        async def asleep(*args: Any) -> Any:
            await awake.wait()
            return await type(real).replace(real, *args)  # type: ignore[arg-type]  # arguments are passed on

        real.replace = asleep  # type: ignore[method-assign,assignment]  # this store sleeps in its calls
        await virtual_seconds(23)
        theirs = await lease(b)
        awake.set()
        await virtual_seconds(5)

        assert mine.lost
        assert not mine.held
        assert theirs.held


async def test_a_deleted_lease_is_lost(world: World) -> None:
    """Whoever deletes the object takes the lease away."""
    async with world.process() as a:
        mine = await lease(a)
        stored = world.bucket.read("leases/job")
        assert stored is not None
        world.bucket.delete("leases/job", stored.generation)
        with pytest.raises(LeaseLost, match="it was deleted"):
            await mine.renew()


async def test_a_store_that_refuses_loses_it_at_the_deadline(world: World) -> None:
    """The reason is the store's own words."""
    async with world.process() as a:
        mine = await lease(a, ttl=TTL)
        a.fault = lambda call: Fault("refused") if call.verb == "replace" else None
        await virtual_seconds(17)
        held = mine.held
        await virtual_seconds(2)

        assert held
        assert "told to refuse" in mine.lost


async def test_a_short_outage_loses_nothing(world: World) -> None:
    """Ten seconds without an answer: still held, and still ours."""
    async with world.process() as a:
        mine = await lease(a, ttl=TTL)
        a.cut_off()
        await virtual_seconds(10)
        a.fault = lambda call: None
        await virtual_seconds(60)

        assert mine.held
        assert mine.epoch == 1


# -- answers that do not come ---------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["create", "replace"])
@pytest.mark.parametrize("kind", ["unsent", "reply_lost", "late", "twice", "busy"])
async def test_an_acquisition_recognises_itself(world: World, verb: Any, kind: Any) -> None:
    """Whatever happens to the answer, it holds the lease, once, and is renewed."""
    async with world.process() as a, world.process() as b:
        if verb == "replace":
            await (await lease(a)).release()
        a.fault = once(verb, Fault(kind))
        mine = await lease(a, ttl=TTL)
        await virtual_seconds(60)

        assert mine.held
        assert mine.epoch == (2 if verb == "replace" else 1)
        assert not await b.client.lease("job")


@pytest.mark.parametrize("kind", ["unsent", "reply_lost", "late", "twice", "busy"])
async def test_an_update_recognises_itself(world: World, kind: Any) -> None:
    """A change whose answer was lost is made, once."""
    async with world.process() as a:
        mine = await lease(a, state_fn=lambda old: 0)
        a.fault = once("replace", Fault(kind))
        await mine.change_state(lambda count: count + 1)
        first = mine.state
        await mine.change_state(lambda count: count + 1)

        assert (first, mine.state) == (1, 2)
        assert mine.held


@pytest.mark.parametrize("kind", ["unsent", "reply_lost", "late", "twice", "busy"])
async def test_a_release_recognises_itself(world: World, kind: Any) -> None:
    """Though somebody else takes the lease the moment it is free."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a)
        a.fault = once("replace", Fault(kind))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.release, {"done": True})
            got: Any = None
            with anyio.fail_after(60):
                while not got:
                    got = await b.client.lease("job")
                    await virtual_seconds(0.01)

        assert got.epoch == 2
        assert got.state == {"done": True}
        assert not mine.lost


async def test_a_store_that_is_always_busy_at_first(world: World) -> None:
    """As a bucket is that is written to twice a second: each first attempt is refused with 429."""
    attempts = itertools.count()

    def busy(call: Call) -> Fault | None:
        if call.verb not in ("create", "replace"):
            return None
        return None if next(attempts) % 2 else Fault("busy")

    async with world.process() as a, world.process() as b:
        a.fault = b.fault = busy
        with anyio.fail_after(HOUR):
            first = await lease(a, ttl=TTL)
            await b.client.leases.cooperative_write("job", add("asked"))
            await first.change_state(add("step"))
            await first.release()
            second = await lease(b, ttl=TTL)

        assert second.state == {"asked": 1, "step": 1}
        assert second.epoch == 2
        assert anyio.current_time() < 10


async def test_no_answer_to_an_acquisition_is_an_error(world: World) -> None:
    """Within the client's patience; what may have been taken runs out by itself."""
    async with world.process(patience=5) as a, world.process() as b:
        a.fault = lambda call: None if call.verb == "read" else Fault("reply_lost")
        a.fault = _deaf_after_create(a.fault)
        with pytest.raises(StoreUnavailable):
            await a.client.lease("job", ttl=TTL)
        taken = await b.client.lease("job")
        await virtual_seconds(TTL + MARGIN + 1)

        assert isinstance(taken, Taken)
        assert await b.client.lease("job")


def _deaf_after_create(fault: Callable[[Call], Fault | None]) -> Callable[[Call], Fault | None]:
    created = False

    def decide(call: Call) -> Fault | None:
        nonlocal created
        created = created or call.verb == "create"
        return Fault("unsent") if created and call.verb == "read" else fault(call)

    return decide


async def test_a_very_late_answer_to_the_acquisition_is_no_trust(world: World) -> None:
    """The lease that `lease` returns is held at that moment, however long the answer took."""
    async with world.process() as a:
        a.fault = once("create", Fault("slow_reply", seconds=19))
        mine = await lease(a, ttl=TTL)

        assert mine.held
        assert mine.epoch == 1


async def test_trust_counts_from_the_first_sending(world: World) -> None:
    """A renewal that is recognised late was applied nobody knows when: perhaps at once."""
    async with world.process() as a:
        mine = await lease(a, ttl=TTL, renew=False)
        a.fault = lambda call: Fault("reply_lost") if call.verb == "replace" else Fault("unsent")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.renew)
            await virtual_seconds(1.5)
            sent = anyio.current_time()
            await virtual_seconds(8)
            a.fault = lambda call: None
        known = anyio.current_time()
        await virtual_seconds(sent + TTL - MARGIN - known)

        assert known - sent > 5
        assert not mine.held


# -- the state ------------------------------------------------------------------------------------


async def test_the_state_outlives_its_holders(world: World) -> None:
    """Updated, left behind by a release, found by the next acquisition."""
    async with world.process() as a:
        mine = await lease(a)
        assert mine.state is None
        await mine.update_state({"step": 1})
        assert mine.state == {"step": 1}
        await mine.release()
        second = await lease(a)
        assert second.state == {"step": 1}
        await second.release({"step": 2})
        third = await lease(a, state_fn=lambda old: {**old, "by": "third"})
        assert third.state == {"step": 2, "by": "third"}
        await third.release(None)
        assert (await lease(a, state_fn=lambda old: KEEP)).state is None


async def test_finished_work_is_refused_in_the_same_breath(world: World) -> None:
    """Nothing is written, whoever asks; the reason comes back."""

    def unless_done(old: Any) -> Any:
        return Refuse("done before") if old and old["done"] else {"done": False}

    async with world.process() as a, world.process() as b:
        mine = await lease(a, state_fn=unless_done)
        await mine.release({"done": True})
        before = world.writes()
        refused = await b.client.lease("job", state_fn=unless_done)

        assert refused == Refuse("done before")
        assert not refused
        assert world.writes() == before
        assert world.record("job").epoch == 1


async def test_a_state_fn_that_loses_the_race_sees_the_winner(world: World) -> None:
    """Two ask for unfinished work at once; the one whose write comes second is told: taken."""
    async with world.process() as a, world.process() as b:
        a.fault = once("create", Fault("delayed", seconds=5))
        got: dict[str, Any] = {}

        async def ask(process: Process, name: str) -> None:
            got[name] = await process.client.lease("job", state_fn=lambda old: [name])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, a, "a")
            tasks.start_soon(ask, b, "b")

        assert isinstance(got["a"], Taken)
        assert got["a"].by.state == ["b"]
        assert got["b"].state == ["b"]


async def test_a_state_fn_that_raises_takes_nothing(world: World) -> None:
    """Its error comes through as it is."""

    def fail(old: object) -> object:
        raise LookupError("no")

    async with world.process() as a:
        with pytest.raises(LookupError, match="no"):
            await a.client.lease("job", state_fn=fail)
        with pytest.raises(InvalidArguments, match="state of lease 'job'"):
            await a.client.lease("job", state_fn=lambda old: object())
        assert await a.client.leases.get("job") is None


async def test_each_update_renews(world: World) -> None:
    """An explicit lease lives as long as something is written, and no longer."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a, ttl=TTL, renew=False)
        for number in range(5):
            await virtual_seconds(15)
            await mine.update_state(number)
            assert mine.held
        await virtual_seconds(17.9)
        assert mine.held
        await virtual_seconds(0.2)
        assert not mine.held
        await mine.renew()  # late, but nobody has taken it
        assert mine.held
        await virtual_seconds(23)
        assert (await lease(b)).epoch == 2
        with pytest.raises(LeaseLost, match="somebody else has it"):
            await mine.renew()


async def test_writes_are_gathered_to_one_a_second(world: World) -> None:
    """A hundred callers in ten seconds make eight writes, each returns when its own is written."""
    async with world.process() as a:
        mine = await lease(a, ttl=600.0)
        before, waits = world.writes(), []

        async def one(number: int) -> None:
            await virtual_seconds(number / 10)
            waits.append(await seconds(lambda: mine.change_state(lambda n: (n or 0) + 1)))

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one, number)

        assert mine.state == 100
        assert world.writes() - before == 8
        assert max(waits) == pytest.approx(1.25)  # a quarter of it is left to others


async def test_no_two_writes_within_a_second(world: World) -> None:
    """Acquisition, updates, renewals and release of one lease keep the distance."""
    times: list[float] = []
    async with world.process() as a:

        def note(call: Call) -> Fault | None:
            if call.verb in ("create", "replace", "delete"):
                times.append(anyio.current_time())
            return None

        a.fault = note
        mine = await lease(a, ttl=12.0)
        for number in range(30):
            await mine.update_state({"n": number})
            await virtual_seconds(0.3 * (number % 4))
        await mine.release({"n": -1})

    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert len(times) >= 32
    assert min(gaps) >= 1.0 - 1e-6


async def test_a_change_that_fails_fails_alone(world: World) -> None:
    """Its caller gets the error; those gathered with it are written."""
    async with world.process() as a:
        mine = await lease(a)
        failed: list[BaseException] = []

        async def bad() -> None:
            try:
                await mine.change_state(lambda old: {}["missing"])
            except KeyError as e:
                failed.append(e)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.change_state, add("a"))
            tasks.start_soon(bad)
            tasks.start_soon(mine.change_state, add("b"))

        assert len(failed) == 1
        assert mine.state == {"a": 1, "b": 1}
        with pytest.raises(InvalidArguments, match="state of lease 'job'"):
            await mine.update_state(object())


async def test_a_caller_that_is_cancelled_before_the_write_writes_nothing(world: World) -> None:
    """And those that wait with it are not harmed."""
    async with world.process() as a:
        mine = await lease(a)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.change_state, add("kept"))
            with anyio.move_on_after(0.5):
                await mine.change_state(add("cancelled"))

        assert mine.state == {"kept": 1}


async def test_a_caller_that_waits_learns_of_the_end(world: World) -> None:
    """Whether its write was still to be sent, or under way."""
    async with world.process() as a:
        mine = await lease(a)
        waited: list[str] = []

        async def wait() -> None:
            try:
                await mine.renew()
            except LeaseLost as e:
                waited.append(e.message)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await virtual_seconds(1.5)
            a.fault = lambda call: Fault("delayed", seconds=5)
            tasks.start_soon(wait)
            await virtual_seconds(2)
            tasks.start_soon(wait)
            await virtual_seconds(1)
            a.client._holder.close()

        assert len(waited) == 2
        assert all("its upkeep was stopped" in message for message in waited)


async def test_the_state_handed_out_is_a_copy(world: World) -> None:
    """Changing it in place changes nothing."""
    async with world.process() as a:
        mine = await lease(a, state_fn=lambda old: {"list": []})
        mine.state["list"].append(1)
        assert mine.state == {"list": []}


# -- others write too -----------------------------------------------------------------------------


def flag(state: Any) -> Any:
    return {**(state or {}), "cancel": True}


async def test_the_holder_absorbs_what_others_write(world: World) -> None:
    """A cancel flag arrives with the next renewal, and survives every write of the holder."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a, ttl=TTL, state_fn=lambda old: {"step": 0})
        written = await b.client.leases.cooperative_write("job", flag)
        await virtual_seconds(TTL / 3 + 0.1)
        seen = mine.state
        for step in (1, 2, 3):
            await mine.update_state({"step": step})
            await virtual_seconds(TTL)

        assert written == {"step": 0, "cancel": True}
        assert seen == {"step": 0, "cancel": True}
        assert mine.state == {"step": 3, "cancel": True}
        assert mine.held
        assert (await lease_entry(b)).state == {"step": 3, "cancel": True}


async def lease_entry(process: Process, key: str = "job") -> LeaseEntry:
    entry = await process.client.leases.get(key)
    assert entry is not None
    return entry


def add(name: str) -> Callable[[Any], Any]:
    return lambda state: {**(state or {}), name: (state or {}).get(name, 0) + 1}


async def test_neither_side_loses_a_write(world: World) -> None:
    """Holder and three others each count in a key of their own: every count arrives."""

    async def write(process: Process, name: str) -> None:
        for _ in range(20):
            await process.client.leases.cooperative_write("job", add(name))
            await virtual_seconds(0.7)

    async with contextlib.AsyncExitStack() as stack:
        a, *others = [await stack.enter_async_context(world.process()) for _ in range(4)]
        mine = await lease(a, ttl=TTL)
        async with anyio.create_task_group() as tasks:
            for number, other in enumerate(others):
                tasks.start_soon(write, other, f"b{number}")
            for count in range(1, 21):
                await mine.update_state({"a": count})
                await mine.change_state(add("mine"))

        state = {"a": 20, "mine": 1, "b0": 20, "b1": 20, "b2": 20}
        assert (await lease_entry(a)).state == state


@pytest.mark.parametrize(("others", "longest"), [(1, 3.0), (4, 40.0)])
async def test_a_busy_holder_and_others_take_turns(
    world: World, others: int, longest: float
) -> None:
    """An object takes one write a second; a request to stop reaches who reports all the time.

    Nor do others that write all the time shut the holder out.
    """
    took: list[float] = []

    async def write(process: Process, number: int) -> None:
        write_once = partial(process.client.leases.cooperative_write, "job", add(f"b{number}"))
        took.extend([await seconds(write_once) for _ in range(10)])
        left.discard(number)

    async with contextlib.AsyncExitStack() as stack:
        a, *rest = [
            await stack.enter_async_context(world.process(limited=True)) for _ in range(others + 1)
        ]
        mine = await lease(a, ttl=TTL)
        left, own = set(range(others)), []
        async with anyio.create_task_group() as tasks:
            for number, process in enumerate(rest):
                tasks.start_soon(write, process, number)
            while left:
                own.append(await seconds(lambda: mine.change_state(add("a"))))

        state = {"a": len(own), **{f"b{number}": 10 for number in range(others)}}
        assert (await lease_entry(a)).state == state
        assert mine.held
    assert max(own) < 3.0
    assert max(took) < longest


@pytest.mark.parametrize("kind", ["unsent", "reply_lost", "late", "twice", "busy"])
async def test_an_ambiguous_renewal_and_a_foreign_write(world: World, kind: Any) -> None:
    """The renewal's answer is lost, then somebody writes: both are there, the lease is held."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a, ttl=TTL)

        def then_flag(call: Call) -> Fault | None:
            if call.verb != "replace" or call.name != "leases/job" or done:
                return None
            done.append(1)
            return Fault(kind)

        done: list[int] = []
        a.fault = then_flag
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.update_state, {"step": 1})
            await virtual_seconds(1.0)
            await b.client.leases.cooperative_write("job", flag)
        await mine.renew()

        assert mine.state == {"step": 1, "cancel": True}
        assert mine.held
        assert mine.epoch == 1


async def test_a_foreign_write_recognises_itself_under_the_holders(world: World) -> None:
    """Its answer was lost and the holder wrote on top: it is not made a second time."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a)
        await virtual_seconds(2)
        b.fault = _unanswered_from_the_first_write()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(b.client.leases.cooperative_write, "job", add("asked"))
            await virtual_seconds(1)
            for _ in range(3):
                await mine.renew()
            b.fault = lambda call: None

        await mine.renew()
        assert mine.state == {"asked": 1}


def _unanswered_from_the_first_write() -> Callable[[Call], Fault | None]:
    """The write is applied and not answered, and nothing is answered after it."""
    written = False

    def decide(call: Call) -> Fault | None:
        nonlocal written
        if call.verb == "replace" and not written:
            written = True
            return Fault("reply_lost")
        return Fault("unsent") if written else None

    return decide


async def test_a_foreign_write_keeps_no_dead_holder_alive(world: World) -> None:
    """The age of a lease is that of its holder's last write, whoever writes after it."""
    async with world.process() as a, world.process() as b:
        await lease(a, ttl=TTL)
        a.cut_off()
        for _ in range(5):
            await virtual_seconds(4)
            await b.client.leases.cooperative_write("job", flag)
        entry = await lease_entry(b)
        await virtual_seconds(2.1)

        assert entry.age == pytest.approx(20)
        taken = await lease(b)
        assert taken.epoch == 2
        assert taken.state == {"cancel": True}


async def test_others_may_write_before_and_after_there_is_a_holder(world: World) -> None:
    """The next holder finds it; the epoch is not touched."""
    async with world.process() as a, world.process() as b:
        await b.client.leases.cooperative_write("job", flag)
        free = await lease_entry(b)
        mine = await lease(a)
        assert (free.status, free.epoch, free.holder, free.label) == ("free", 0, "", "")
        assert (mine.epoch, mine.state) == (1, {"cancel": True})
        await mine.release({})
        await b.client.leases.cooperative_write("job", lambda old: {"again": True})
        assert (await lease(a)).state == {"again": True}
        assert await b.client.leases.cooperative_write("job", lambda old: KEEP) == {"again": True}


async def test_states_that_cannot_be_merged_are_refused(world: World) -> None:
    """Others write dicts only; a holder that would wipe out their write is told."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a, state_fn=lambda old: [1])
        with pytest.raises(UsageError, match="is a dict, not list"):
            await b.client.leases.cooperative_write("job", flag_of_list)
        await mine.update_state(None)
        await b.client.leases.cooperative_write("job", flag)
        with pytest.raises(UsageError, match="only dicts can be merged"):
            await mine.update_state([2])
        await mine.change_state(lambda state: [state])

        assert mine.state == [{"cancel": True}]
        assert mine.held


def flag_of_list(state: Any) -> Any:
    return {"cancel": True, "was": state}


async def test_what_the_holder_has_seen_it_may_remove(world: World) -> None:
    """A flag found at the acquisition is its own to clear; one it was sent, change_state clears."""
    async with world.process() as a, world.process() as b:
        await b.client.leases.cooperative_write("job", flag)
        mine = await lease(a)
        await mine.update_state({"step": 1})
        assert mine.state == {"step": 1}
        await b.client.leases.cooperative_write("job", flag)
        await mine.change_state(lambda state: {k: v for k, v in state.items() if k != "cancel"})
        assert mine.state == {"step": 1}


# -- handing over ---------------------------------------------------------------------------------


async def test_another_process_goes_on_under_the_same_epoch(world: World) -> None:
    """The first one stops, the second one is the same holder to everybody else."""
    async with world.process() as a, world.process() as b, world.process() as c:
        mine = await lease(a, label="a", state_fn=lambda old: {"step": 1})
        holder = mine.holder
        token = await mine.hand_over()
        theirs = await b.client.leases.attach("job", token)
        await virtual_seconds(60)

        assert (theirs.epoch, theirs.holder, theirs.label) == (1, holder, "a")
        assert theirs.state == {"step": 1}
        assert theirs.held
        assert not mine.held
        with pytest.raises(LeaseLost, match="was handed over"):
            await mine.renew()
        assert isinstance(await c.client.lease("job"), Taken)
        await theirs.release()
        assert (await lease(c)).epoch == 2


async def test_only_the_token_attaches(world: World) -> None:
    """Not what is shown or stored, not a token of before, not to a lease that is free."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a)
        token = await mine.hand_over()
        for wrong in (mine.holder, world.record("job").holder, "", token[:-1]):
            with pytest.raises(LeaseLost, match="not held with this token"):
                await b.client.leases.attach("job", wrong)
        with pytest.raises(LeaseLost):
            await b.client.leases.attach("nothing", token)
        theirs = await b.client.leases.attach("job", token)
        await theirs.release()
        with pytest.raises(LeaseLost):
            await b.client.leases.attach("job", token)


async def test_attaching_late_is_fine_if_nobody_took_it(world: World) -> None:
    """The holder is whoever has the token, until somebody else is."""
    async with world.process() as a, world.process() as b:
        token = await (await lease(a, ttl=TTL)).hand_over()
        await virtual_seconds(100)
        theirs = await b.client.leases.attach("job", token)
        assert theirs.held
        assert theirs.epoch == 1


@pytest.mark.parametrize("kind", ["unsent", "reply_lost", "late", "twice", "busy"])
async def test_attaching_recognises_itself(world: World, kind: Any) -> None:
    """Whatever happens to the answer."""
    async with world.process() as a, world.process() as b:
        token = await (await lease(a)).hand_over()
        b.fault = once("replace", Fault(kind))
        theirs = await b.client.leases.attach("job", token)
        await virtual_seconds(60)
        assert theirs.held


# -- looking, and using it wrong ------------------------------------------------------------------


async def test_get_and_list_show_holders(world: World) -> None:
    """Status, label, six characters of the holder, epoch, age, ttl and state."""
    async with world.process() as a, world.process() as b:
        held = await lease(a, "q/held", label="host a", ttl=TTL, state_fn=lambda old: {"n": 1})
        await (await lease(a, "q/free")).release("left")
        dead = await lease(b, "q/dead", ttl=12.0)
        await lease(a, "other")
        b.client._holder.close()
        await virtual_seconds(15)

        assert await a.client.leases.get("nothing") is None
        found = {entry.key: entry async for entry in a.client.leases.list("q/")}
        assert list(found) == ["q/dead", "q/free", "q/held"]
        assert found["q/held"] == LeaseEntry(
            "q/held", {"n": 1}, "held", "host a", held.holder, 1, found["q/held"].age, TTL
        )
        assert found["q/held"].age < TTL / 3
        assert len(held.holder) == 6
        assert (found["q/dead"].status, found["q/dead"].holder) == ("expired", dead.holder)
        free = found["q/free"]
        assert (free.status, free.state, free.holder, free.label) == ("free", "left", "", "")


@pytest.mark.parametrize("ttl", ["1m", timedelta(minutes=1), 60])
async def test_a_ttl_as_any_length_of_time(ttl: Duration, world: World) -> None:
    """As everywhere: seconds, a timedelta, or text."""
    async with world.process() as a:
        assert (await lease(a, ttl=ttl)).ttl == 60.0
        async with a.client.hold("other", ttl=ttl) as held:
            assert held.ttl == 60.0


@pytest.mark.parametrize("ttl", ["soon", None, -1, math.nan, math.inf])
async def test_a_ttl_that_is_no_length_of_time(ttl: Any, world: World) -> None:
    """It is refused as a duration, before anything is written."""
    async with world.process() as a:
        with pytest.raises(UsageError, match="duration"):
            await a.client.lease("job", ttl=ttl)
        with pytest.raises(UsageError, match="duration"):
            async with a.client.hold("job", ttl=ttl):
                raise AssertionError
    assert world.writes() == 0


async def test_wrong_calls_say_what_to_do(world: World) -> None:
    """Too short a ttl, an impossible key, a closed client: nothing is written."""
    async with world.process() as a:
        with pytest.raises(UsageError, match="too short"):
            await a.client.lease("job", ttl=5.0)
        with pytest.raises(InvalidId):
            await a.client.lease("")
        with pytest.raises(InvalidId):
            async with a.client.hold("."):
                raise AssertionError
    with pytest.raises(UsageError, match="open client"):
        await a.client.lease("job")
    assert world.writes() == 0


async def test_a_shorter_lease_for_tests(world: World) -> None:
    """Terms of one's own stand for the ttl."""
    async with world.process() as a, world.process() as b:
        await lease(a, ttl=Terms.tight(3.0, 0.5))
        a.cut_off()
        await virtual_seconds(3.6)
        assert await b.client.lease("job")


async def test_damage_is_no_free_lease(world: World) -> None:
    """An object that is no lease is not taken over."""
    world.bucket.create("leases/job", b"{}", {}, True)
    async with world.process() as a:
        with pytest.raises(UsageError, match="leases/job is damaged"):
            await a.client.lease("job")
        with pytest.raises(UsageError, match="leases/job is damaged"):
            await a.client.leases.cooperative_write("job", flag)


async def test_a_closed_client_holds_nothing(world: World) -> None:
    """What it still held runs out; the lease knows."""
    async with world.process() as a:
        mine = await lease(a, ttl=TTL)
    async with world.process() as b:
        assert not mine.held
        with pytest.raises(LeaseLost):
            await mine.renew()
        assert isinstance(await b.client.lease("job"), Taken)
        await virtual_seconds(TTL + MARGIN + 0.1)
        assert await b.client.lease("job")


async def test_it_shows_what_it_is(world: World) -> None:
    """The representation has the key, the epoch and the six characters."""
    async with world.process() as a:
        mine = await lease(a, label="a", ttl=TTL)
        assert repr(mine) == f"<lease 'job', epoch 1, holder {mine.holder}>"
        assert (mine.key, mine.label, mine.ttl) == ("job", "a", TTL)
    assert isinstance(world.bucket, Bucket)
