"""`hold`: a block that runs while a lease is held, and not a moment longer."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from durable.client import Client
from durable.errors import LeaseLost, LeaseRefused, LeaseTaken
from durable.leases import LeaseHolder, Refuse, Taken
from durable.leases.holder import Wanted
from durable.loops import IoThread
from durable.store import Store
from durable.store.memory import Bucket, Fault, MemoryBackend
from tests.facts import until
from tests.primitives.world import HOUR, World, lease
from tests.runtime.by_hand import ClockByHand
from tests.runtime.clocks import BACKENDS, virtual
from tests.virtual_time import virtual_seconds

TTL = 20.0

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


async def test_the_block_has_the_lease_and_gives_it_back(world: World) -> None:
    """Held inside, free after it, the state left behind."""
    async with world.process() as a, world.process() as b:
        async with a.client.hold("job", ttl=TTL, label="a") as held:
            await virtual_seconds(HOUR)
            assert held.held
            assert isinstance(await b.client.lease("job"), Taken)
            await held.update_state({"n": 1})
        after = await b.client.leases.get("job")

        assert after is not None
        assert (after.status, after.state, after.epoch) == ("free", {"n": 1}, 1)
        assert not held.held
        assert not held.lost


async def test_taken_is_an_error(world: World) -> None:
    """The block does not run, and the message says who holds it."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a, label="host a")
        with pytest.raises(LeaseTaken, match=rf"'host a'.*{mine.holder}") as caught:
            async with b.client.hold("job"):
                raise AssertionError
        assert "waiting=True" in (caught.value.hint or "")


async def test_refused_is_an_error(world: World) -> None:
    """With the reason that the state_fn gave."""
    async with world.process() as a:
        with pytest.raises(LeaseRefused, match=r"'job'.*finished") as caught:
            async with a.client.hold("job", state_fn=lambda old: Refuse("finished")):
                raise AssertionError
        assert caught.value.reason == "finished"


async def test_waiting_gets_it_when_it_is_free(world: World) -> None:
    """Soon after the release, and only then."""
    async with world.process() as a, world.process() as b:
        mine = await lease(a)

        async def later() -> None:
            await virtual_seconds(30)
            await mine.release()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(later)
            async with b.client.hold("job", waiting=True) as held:
                assert 30 <= anyio.current_time() <= 32
                assert held.epoch == 2


async def test_waiting_ends(world: World) -> None:
    """At the timeout, with the error that says who held it all the time."""
    async with world.process() as a, world.process() as b:
        await lease(a)
        began = anyio.current_time()
        with pytest.raises(LeaseTaken):
            async with b.client.hold("job", waiting=True, timeout=45):
                raise AssertionError
        assert anyio.current_time() - began == pytest.approx(45, abs=0.1)


async def test_waiting_costs_no_writes(world: World) -> None:
    """A waiter only reads, about once a second."""
    async with world.process() as a, world.process() as b:
        await lease(a, ttl=6000.0)
        writes, reads = world.writes(), world.bucket.calls["read"]
        with pytest.raises(LeaseTaken):
            async with b.client.hold("job", waiting=True, timeout=300):
                raise AssertionError
        assert world.writes() == writes
        assert world.bucket.calls["read"] - reads < 700


async def test_its_loss_cancels_the_block(world: World) -> None:
    """Before anybody else can have it, and LeaseLost is raised at the end of the block."""
    async with world.process() as a, world.process() as b:
        seen: list[Any] = []

        async def block() -> None:
            async with a.client.hold("job", ttl=TTL) as held:
                a.cut_off()
                try:
                    await virtual_seconds(HOUR)
                finally:
                    seen.extend([anyio.current_time(), held.held])
                    with anyio.CancelScope(shield=True):
                        seen.append(await b.client.lease("job", ttl=TTL))

        with pytest.raises(LeaseLost, match="not renewed in time"):
            await block()
        cancelled_at, still_held, rival = seen

        assert 11 < cancelled_at <= TTL - 2
        assert not still_held
        assert isinstance(rival, Taken)
        a.fault = lambda call: None
        await virtual_seconds(TTL)
        assert (await lease(b)).epoch == 2


async def test_a_block_that_ends_after_the_loss_is_told(world: World) -> None:
    """Though it never awaited anything, or swallowed its cancellation and came to its end."""
    async with world.process() as a:

        async def block() -> None:
            async with a.client.hold("job", ttl=TTL):
                stored = world.bucket.read("leases/job")
                assert stored is not None
                world.bucket.delete("leases/job", stored.generation)
                with anyio.CancelScope(shield=True):
                    await virtual_seconds(60)

        with pytest.raises(LeaseLost):
            await block()


async def test_a_block_that_fails_after_the_loss_is_told_both(world: World) -> None:
    """LeaseLost, caused by what the block raised while it was cut off."""
    async with world.process() as a:

        async def block() -> None:
            async with a.client.hold("job", ttl=TTL):
                a.cut_off()
                try:
                    await virtual_seconds(HOUR)
                finally:
                    raise ValueError("half written")

        with pytest.raises(LeaseLost) as caught:
            await block()
        assert isinstance(caught.value.__cause__, ValueError)


async def test_an_error_in_the_block_goes_up_and_the_lease_is_free(world: World) -> None:
    """As it is, in no group, and nobody has to wait for the ttl."""
    async with world.process() as a, world.process() as b:
        with pytest.raises(ValueError, match="mine"):
            async with a.client.hold("job", ttl=TTL):
                raise ValueError("mine")
        assert (await lease(b)).epoch == 2


async def test_a_cancelled_block_gives_the_lease_back(world: World) -> None:
    """Cancelled from outside: it is released at once, and the cancellation goes on."""
    async with world.process() as a, world.process() as b:
        with anyio.move_on_after(5) as scope:
            async with a.client.hold("job", ttl=TTL):
                await virtual_seconds(HOUR)
        assert scope.cancelled_caught
        assert (await lease(b)).epoch == 2


async def test_a_cancelled_client_gives_the_lease_back(world: World) -> None:
    """Also where the cancellation comes from around the client."""
    async with world.process() as b:
        with anyio.move_on_after(5):
            async with world.process() as a, a.client.hold("job", ttl=TTL):
                await virtual_seconds(HOUR)
        assert (await lease(b)).epoch == 2


async def test_a_block_cannot_hang_on_a_dead_store(world: World) -> None:
    """Cancelled while nothing answers: a few seconds, then the lease is left to run out."""
    async with world.process() as a:
        began = anyio.current_time()
        with anyio.move_on_after(5):
            async with a.client.hold("job", ttl=TTL):
                a.cut_off()
                await virtual_seconds(HOUR)
        assert anyio.current_time() - began < 10


async def test_a_block_may_release_it_itself(world: World) -> None:
    """With a final state; the end of the block then has nothing to do."""
    async with world.process() as a, world.process() as b:
        async with a.client.hold("job") as held:
            await held.release({"done": True})
            await virtual_seconds(60)
        assert (await lease(b)).state == {"done": True}


async def test_a_block_may_hand_it_over(world: World) -> None:
    """Then its end releases nothing."""
    async with world.process() as a, world.process() as b:
        async with a.client.hold("job") as held:
            token = await held.hand_over()
        theirs = await b.client.leases.attach("job", token)
        assert (theirs.epoch, theirs.held) == (1, True)


async def test_a_store_that_is_slow_to_answer_costs_nothing(world: World) -> None:
    """Two seconds for each answer: the block is never disturbed."""
    async with world.process() as a:
        a.fault = lambda call: Fault("slow_reply", seconds=2)
        async with a.client.hold("job", ttl=TTL) as held:
            await virtual_seconds(200)
            assert held.held


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_on_real_stores_and_clocks(client: Client) -> None:
    """Memory and SQLite, asyncio and trio: hold, refuse the second, update, release, next epoch."""
    async with client.hold("job", label="a") as first:
        taken: Any = await client.lease("job")
        await first.update_state({"n": (1, 2)})
    async with client.hold("job", label="b", waiting=True) as second:
        found = second.state

    assert isinstance(taken, Taken)
    assert (first.epoch, second.epoch, found) == (1, 2, {"n": (1, 2)})


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_loss_cancels_on_real_clocks(client: Client) -> None:
    """On both event loops the block is cut off, and only the block."""

    async def block() -> None:
        async with client.hold("job") as held, anyio.create_task_group() as tasks:
            stored = await client.store.read("leases/job")
            assert stored is not None
            assert await client.store.delete("leases/job", stored.generation)
            tasks.start_soon(_renew, held)
            await anyio.sleep_forever()

    with anyio.fail_after(10):
        with pytest.raises(LeaseLost, match="deleted"):
            await block()
        await anyio.lowlevel.checkpoint()


async def _renew(held: Any) -> None:
    try:
        await held.renew()
    except LeaseLost:
        await anyio.sleep_forever()  # the block is cancelled by the loss, not by this error


# -- a body that blocks its event loop -------------------------------------------------------------


class Threaded:
    """Leases that are kept in a thread, on a clock that the test moves."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.clock = ClockByHand()
        system = self.clock.system()
        self.bucket = Bucket(now=system.wall)
        self.store = Store(MemoryBackend(self.bucket), system=system)
        kept_in = IoThread(self.clock.run)
        self.holder = LeaseHolder(self.store, lambda: tasks, thread=lambda: kept_in)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_body_that_blocks_its_event_loop_loses_nothing() -> None:
    """It is renewed in a thread, for longer than it would last by itself."""
    async with anyio.create_task_group() as tasks:
        process = Threaded(tasks)
        renewals = process.bucket.calls
        async with process.holder.hold(Wanted("job", TTL), waiting=0) as held:
            for _ in range(5):
                count = renewals["replace"]
                process.clock.move(TTL / 3)
                until(lambda count=count: renewals["replace"] > count)
            taken = await process.holder.acquire(Wanted("job"))

            assert held.held
        assert isinstance(taken, Taken)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_its_loss_reaches_a_body_that_blocked_its_event_loop() -> None:
    """Known in the thread at once, it cancels the body as soon as its event loop runs again."""
    async with anyio.create_task_group() as tasks:
        process = Threaded(tasks)

        async def block() -> None:
            async with process.holder.hold(Wanted("job", TTL), waiting=0) as held:
                with process.bucket.lock:
                    process.bucket.drop("leases/job")
                process.clock.move(TTL / 3)
                until(lambda: bool(held.lost))
                await anyio.sleep_forever()

        with pytest.raises(LeaseLost, match="deleted"):
            await block()
