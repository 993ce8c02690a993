"""One worker's lease, on virtual time; and, at the end, on real threads."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import anyio.abc
import msgspec
import pytest

from durable.errors import StoreRefused, StoreUnavailable
from durable.protocol import leases, names, records
from durable.protocol.leases import Terms
from durable.runtime.lease import LeaseKeeper
from durable.store import Store, Stored
from durable.store.memory import Bucket, Call, Fault, MemoryBackend
from durable.system import System
from tests.facts import until
from tests.runtime.by_hand import ClockByHand
from tests.runtime.clocks import BACKENDS, virtual
from tests.stores import chosen
from tests.virtual_time import virtual_seconds

TERMS = Terms.of(20.0)  # renewed every 6.67 s, trusted for 18 s
NAME = names.worker("w1")


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual(request.param)


class LateGroup:
    """A task group whose tasks start when the test says so."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.starts: list[Callable[[anyio.abc.TaskGroup], None]] = []

    def start_soon(self, func: Callable[..., Awaitable[object]], *args: object) -> None:
        self.starts.append(lambda group: group.start_soon(func, *args))
        self.asked.set()


@dataclass
class World:
    """A worker's surroundings. `faults` decide the fate of calls, `suspended` shifts its clock."""

    group: anyio.abc.TaskGroup
    losses: list[tuple[str, float]] = field(default_factory=list)
    fault: Callable[[Call], Fault | None] = lambda call: None
    suspended: float = 0.0
    epoch: float = field(default_factory=anyio.current_time)
    bucket: Bucket = field(init=False)

    def __post_init__(self) -> None:
        self.bucket = Bucket(now=anyio.current_time)

    @property
    def now(self) -> float:
        """Seconds since the test began, on the worker's boot clock."""
        return anyio.current_time() + self.suspended - self.epoch

    def store(self, patience: float | None = None) -> Store:
        backend = MemoryBackend(chosen(self.bucket), faults=self._decide)
        return Store(backend, system=self.system(), patience=patience)

    def _decide(self, call: Call) -> Fault | None:
        return self.fault(call)  # whatever stands there by then

    def system(self) -> System:
        return System(boot=lambda: self.now, wall=lambda: self.now)

    def keeper(self, patience: float | None = None, group: LateGroup | None = None) -> LeaseKeeper:
        return LeaseKeeper(
            store=self.store(patience),
            system=self.system(),
            terms=TERMS,
            record=records.Lease(worker="w1", ttl=0, margin=0, nonce="", label="host:1", pid=1),
            on_lost=lambda reason: self.losses.append((reason, self.now)),
            task_group=cast(anyio.abc.TaskGroup, group or self.group),
        )

    def lease(self) -> records.Lease | None:
        stored = self.bucket.read(NAME)
        return None if stored is None else decode(stored)

    def writes(self) -> int:
        return sum(self.bucket.calls[verb] for verb in ("create", "replace", "delete"))

    def fence(self, **meta: str) -> None:
        fence(self.bucket, **meta)


@pytest.fixture
async def world() -> object:
    async with anyio.create_task_group() as group:
        yield World(group)
        group.cancel_scope.cancel()


def decode(stored: Stored) -> records.Lease:
    assert stored.body is not None
    return msgspec.json.decode(stored.body, type=records.Lease)


def fence(bucket: Bucket, **meta: str) -> None:
    """What a sweeper does: replace the lease by a dead one, keeping its writers."""
    stored = bucket.read(NAME)
    assert stored is not None
    body = records.encode(msgspec.structs.replace(decode(stored), state="dead", nonce="fence"))
    nonces = f"fence {stored.meta['nonce']}"
    assert bucket.replace(NAME, stored.generation, body, {"nonce": nonces, **meta}, True)


def on(verb: str, *, nth: range | None = None, fault: Fault) -> Callable[[Call], Fault | None]:
    """The same fault for these calls."""
    return lambda call: fault if call.verb == verb and (not nth or call.nth in nth) else None


pytestmark = pytest.mark.anyio


# -- acquiring -----------------------------------------------------------------------------------


async def test_acquire(world: World) -> None:
    """An acquired lease stands in the store with its owner's token, and is trusted."""
    keeper = world.keeper()
    assert not keeper.trusted()
    assert keeper.deadline == -math.inf

    assert await keeper.acquire()

    stored = world.bucket.read(NAME)
    assert stored is not None
    assert stored.meta["owner"] == keeper.owner
    lease = decode(stored)
    assert (lease.worker, lease.ttl, lease.margin, lease.state) == ("w1", 20.0, 2.0, "alive")
    assert lease.label == "host:1"
    assert lease.nonce == stored.meta["nonce"]
    assert keeper.trusted()
    assert keeper.deadline == pytest.approx(18.0)


async def test_concurrent_callers_share_one_acquisition(world: World) -> None:
    """However many ask at once or later, the lease is created once."""
    keeper = world.keeper()
    answers = []

    async def ask() -> None:
        answers.append(await keeper.acquire())

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ask)

    assert answers == [True] * 5
    assert await keeper.acquire()
    assert world.writes() == 1


async def test_cancelled_caller_does_not_take_the_others_along(world: World) -> None:
    """A caller that gives up leaves the acquisition to the others."""
    world.fault = on("create", fault=Fault("delayed", seconds=2.0))
    keeper = world.keeper()
    with anyio.move_on_after(1.0):
        await keeper.acquire()

    assert await keeper.acquire()
    assert world.now == pytest.approx(2.0)
    assert world.writes() == 1


async def test_trust_counts_from_sending(world: World) -> None:
    """The time an answer takes is the holder's loss."""
    world.fault = on("create", fault=Fault("slow_reply", seconds=3.0))
    keeper = world.keeper()

    await keeper.acquire()

    assert world.now == pytest.approx(3.0)
    assert keeper.deadline == pytest.approx(18.0)


async def test_ambiguous_acquisition_is_recognised(world: World) -> None:
    """A create whose answer was lost is found to be ours, and trusted from its first sending."""
    world.fault = on("create", nth=range(1, 2), fault=Fault("slow_reply", seconds=100.0))
    keeper = world.keeper()

    assert await keeper.acquire()

    assert world.now == pytest.approx(TERMS.timeout)
    assert keeper.deadline == pytest.approx(18.0)
    assert world.losses == []


async def test_no_store_within_patience(world: World) -> None:
    """Patience bounds the acquisition; what was sent may land, run out and be fenced."""
    world.fault = on("create", fault=Fault("unsent"))
    keeper = world.keeper(patience=30.0)

    with pytest.raises(StoreUnavailable, match="w1 within 30 s"):
        await keeper.acquire()
    assert world.now == pytest.approx(30.0, abs=0.01)
    world.fault = lambda call: None

    assert not await keeper.acquire()
    assert "not known" in keeper.lost
    assert world.lease() is None
    assert world.losses == []


async def test_endless_patience(world: World) -> None:
    """Without a bound an acquisition outlasts any outage."""
    world.fault = lambda call: Fault("unsent") if world.now < 3600 else None
    keeper = world.keeper()

    assert await keeper.acquire()

    assert world.now >= 3600
    assert keeper.deadline <= world.now + 18.0


async def test_store_refuses(world: World) -> None:
    """A definite no is raised where the lease is asked for; it may be asked for again."""
    world.fault = on("create", nth=range(1, 2), fault=Fault("refused"))
    keeper = world.keeper()

    with pytest.raises(StoreRefused):
        await keeper.acquire()

    assert await keeper.acquire()


async def test_id_of_somebody_else(world: World) -> None:
    """A worker id under which another lease stands is lost, and nothing of it is touched."""
    other = world.keeper()
    await other.acquire()
    keeper = world.keeper()

    assert not await keeper.acquire()
    assert not await keeper.release()

    assert [reason for reason, _ in world.losses] == [keeper.lost]
    assert "somebody else" in keeper.lost
    await virtual_seconds(60.0)
    assert other.trusted()


# -- renewing ------------------------------------------------------------------------------------


async def test_renewal_keeps_the_lease(world: World) -> None:
    """A lease is renewed every third of its ttl, by one write, and never close to its end."""
    keeper = world.keeper()
    await keeper.acquire()
    created = world.bucket.read(NAME)
    assert created is not None

    for _ in range(600):
        await virtual_seconds(6.0)
        assert keeper.deadline - world.now > 18.0 - TERMS.period - 0.01

    stored = world.bucket.read(NAME)
    assert stored is not None
    assert stored.created == created.created
    assert stored.generation != created.generation
    assert len(stored.meta["nonce"].split()) == 8
    assert world.writes() == pytest.approx(3600 / TERMS.period, abs=1)
    assert world.bucket.calls["read"] == 0
    assert world.losses == []


@pytest.mark.parametrize("kind", ["reply_lost", "slow_reply", "twice", "unsent", "busy"])
async def test_ambiguous_renewals(world: World, kind: str) -> None:
    """Whatever happens to every other renewal, the lease is held throughout."""
    fault = Fault(kind, seconds=100.0)  # type: ignore[arg-type]  # a parameter is a plain str
    world.fault = lambda call: fault if call.verb == "replace" and call.nth % 2 else None
    keeper = world.keeper()
    await keeper.acquire()

    for _ in range(300):
        await virtual_seconds(1.0)
        assert keeper.trusted()

    assert world.losses == []


async def test_late_renewal(world: World) -> None:
    """A renewal that lands after its repetition was sent is still ours."""
    world.fault = on("replace", nth=range(1, 20), fault=Fault("late", seconds=2.0))
    keeper = world.keeper()
    await keeper.acquire()

    await virtual_seconds(60.0)

    assert keeper.trusted()
    assert world.losses == []


async def test_unanswered_renewal_extends_nothing(world: World) -> None:
    """Until a renewal is acknowledged, trust ends where the last acknowledged one says."""
    applied = Fault("slow_reply", seconds=100.0)
    world.fault = lambda call: applied if call.verb in ("replace", "read") else None
    keeper = world.keeper()
    await keeper.acquire()

    await virtual_seconds(17.0)
    assert keeper.deadline == pytest.approx(18.0)
    await virtual_seconds(2.0)

    assert not keeper.trusted()
    assert [at for _, at in world.losses] == [pytest.approx(18.0, abs=0.01)]


async def test_outage_that_is_survived(world: World) -> None:
    """An outage that ends before the deadline costs nothing."""
    keeper = world.keeper()
    await keeper.acquire()
    world.fault = lambda call: Fault("unsent") if world.now < 16.0 else None

    await virtual_seconds(100.0)

    assert keeper.trusted()
    assert world.losses == []


@pytest.mark.parametrize("kind", ["unsent", "delayed", "refused"])
async def test_outage_longer_than_the_trust(world: World, kind: str) -> None:
    """A lease that cannot be renewed is lost at its deadline, once, and not written after it."""
    keeper = world.keeper()
    await keeper.acquire()
    world.fault = lambda call: Fault(kind, seconds=1000.0)  # type: ignore[arg-type]  # a parameter is a plain str

    await virtual_seconds(17.9)
    assert keeper.trusted()
    assert world.losses == []
    await virtual_seconds(0.2)
    assert not keeper.trusted()
    calls = len(world.bucket.log)
    await virtual_seconds(1000.0)

    assert [at for _, at in world.losses] == [pytest.approx(18.0, abs=0.01)]
    assert "not renewed in time" in keeper.lost
    assert len(world.bucket.log) == calls
    assert not await keeper.acquire()


async def test_full_disk_that_is_mended(world: World) -> None:
    """A store that refuses renewals for a while is asked again until the deadline."""
    keeper = world.keeper()
    await keeper.acquire()
    world.fault = lambda call: Fault("refused") if world.now < 14.0 else None

    await virtual_seconds(100.0)

    assert keeper.trusted()


# -- losing --------------------------------------------------------------------------------------


async def test_fenced(world: World) -> None:
    """A fenced holder learns it at its next renewal, once; the fence stays as it is."""
    keeper = world.keeper()
    await keeper.acquire()
    await virtual_seconds(10.0)
    world.fence()

    await virtual_seconds(60.0)

    assert [at for _, at in world.losses] == [pytest.approx(2 * TERMS.period, abs=0.01)]
    assert "fenced" in keeper.lost
    assert not keeper.trusted()
    assert keeper.deadline == -math.inf
    assert not await keeper.acquire()
    assert not await keeper.release()
    lease = world.lease()
    assert lease is not None
    assert lease.state == "dead"


async def test_fence_that_carries_our_token(world: World) -> None:
    """A dead lease is lost even if whoever fenced it left our token beside it."""
    keeper = world.keeper()
    await keeper.acquire()
    world.fence(owner=keeper.owner)

    await virtual_seconds(10.0)

    assert len(world.losses) == 1
    assert not keeper.trusted()


async def test_fence_on_top_of_an_unacknowledged_renewal(world: World) -> None:
    """A renewal that was applied, not answered, then fenced is not taken for a held lease."""

    def fault(call: Call) -> Fault | None:
        if call.verb != "replace":
            return None
        if call.nth == 2:  # the repetition, refused because of the fence that knows our nonce
            world.fence()
        return Fault("reply_lost") if call.nth == 1 else None

    world.fault = fault
    keeper = world.keeper()
    await keeper.acquire()

    await virtual_seconds(10.0)

    assert len(world.losses) == 1
    assert not keeper.trusted()


@pytest.mark.parametrize("body", [None, b"not a lease"])
async def test_gone_or_foreign(world: World, body: bytes | None) -> None:
    """A lease that was deleted, or overwritten with something unreadable, is lost."""
    keeper = world.keeper()
    await keeper.acquire()
    stored = world.bucket.read(NAME)
    assert stored is not None
    if body is None:
        world.bucket.delete(NAME, stored.generation)
    else:
        world.bucket.replace(NAME, stored.generation, body, stored.meta, True)

    await virtual_seconds(60.0)

    assert len(world.losses) == 1
    assert keeper.lost == world.losses[0][0]
    assert not keeper.trusted()


# -- suspended -----------------------------------------------------------------------------------


async def test_suspended_and_not_fenced(world: World) -> None:
    """Past its deadline nothing is held, until one more renewal shows that nobody fenced it."""
    keeper = world.keeper()
    await keeper.acquire()
    await virtual_seconds(1.0)
    world.suspended = 200.0
    world.fault = on("replace", nth=range(1, 2), fault=Fault("slow_reply", seconds=3.0))

    assert not keeper.trusted()
    assert await keeper.acquire()

    assert keeper.trusted()
    assert keeper.deadline > world.now + 10.0
    await virtual_seconds(100.0)
    assert keeper.trusted()
    assert world.losses == []


async def test_suspended_and_fenced(world: World) -> None:
    """Whoever was fenced while suspended learns it when asking, before anything else."""
    keeper = world.keeper()
    await keeper.acquire()
    await virtual_seconds(1.0)
    world.suspended = 200.0
    world.fence()

    assert not keeper.trusted()
    assert not await keeper.acquire()

    assert [reason for reason, _ in world.losses] == [keeper.lost]


async def test_suspended_without_a_store(world: World) -> None:
    """After a suspension one unanswered renewal is the end."""
    keeper = world.keeper()
    await keeper.acquire()
    await virtual_seconds(1.0)
    world.suspended = 200.0
    world.fault = lambda call: Fault("unsent")

    assert not await keeper.acquire()

    assert world.now - 201.0 < TERMS.period + TERMS.timeout
    assert len(world.losses) == 1


# -- giving back ---------------------------------------------------------------------------------


async def test_release_and_acquire_again(world: World) -> None:
    """A released lease is gone, nothing is written any more, and it can be had again."""
    keeper = world.keeper()
    await keeper.acquire()
    await virtual_seconds(10.0)

    assert await keeper.release()

    assert world.lease() is None
    assert not keeper.trusted()
    writes = world.writes()
    await virtual_seconds(60.0)
    assert world.writes() == writes
    assert await keeper.acquire()
    await virtual_seconds(60.0)
    assert keeper.trusted()
    assert world.losses == []


async def test_release_of_nothing(world: World) -> None:
    """Releasing what is not held writes nothing."""
    keeper = world.keeper()

    assert await keeper.release()

    assert world.bucket.log == []


@pytest.mark.parametrize("kind", ["delayed", "slow_reply"])
async def test_release_during_a_renewal(world: World, kind: str) -> None:
    """Whether the renewal under way was applied or not, its lease is deleted."""
    world.fault = on("replace", fault=Fault(kind, seconds=1000.0))  # type: ignore[arg-type]  # a parameter is a plain str
    keeper = world.keeper()
    await keeper.acquire()
    await virtual_seconds(TERMS.period + 1.0)

    assert await keeper.release()

    assert world.lease() is None
    assert world.now == pytest.approx(TERMS.period + 1.0, abs=0.1)


async def test_release_during_an_acquisition(world: World) -> None:
    """Giving up an acquisition wakes those who wait for it, with a no."""
    world.fault = on("create", fault=Fault("delayed", seconds=1000.0))
    keeper = world.keeper()
    answers: list[bool] = []

    async def ask() -> None:
        answers.append(await keeper.acquire())

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await virtual_seconds(1.0)
        assert await keeper.release()

    assert answers == [False]
    assert world.lease() is None


async def test_stop_before_the_renewal_runs(world: World) -> None:
    """A lease that is given up at once is not taken by a task or thread that starts late."""
    late = LateGroup()
    keeper = world.keeper(group=late)
    answers: list[bool] = []

    async def ask() -> None:
        answers.append(await keeper.acquire())

    with anyio.fail_after(100.0):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await late.asked.wait()
            keeper.stop()
            for start in late.starts:
                start(group)

    assert answers == [False]
    assert world.lease() is None


async def test_release_does_not_delete_a_fence(world: World) -> None:
    """A lease that was fenced meanwhile is not ours to delete."""
    keeper = world.keeper()
    await keeper.acquire()
    world.fence()

    assert not await keeper.release()

    assert world.lease() is not None
    assert world.losses == []


@pytest.mark.parametrize("ends", ["dead", "tidied"])
async def test_release_of_what_was_fenced(world: World, ends: str) -> None:
    """A worker that slept while it was fenced, and then gives back, is not alive under that id."""
    keeper = world.keeper()
    await keeper.acquire()
    world.suspended += 200.0
    world.fence()
    fenced = world.bucket.read(NAME)
    assert fenced is not None
    if ends == "tidied":
        world.bucket.delete(NAME, fenced.generation)

    await keeper.release()
    if ends == "dead":
        world.bucket.delete(NAME, fenced.generation)

    assert not await keeper.acquire()
    assert keeper.lost
    assert world.lease() is None


async def test_release_while_a_create_is_under_way(world: World) -> None:
    """What may still land would run out and be fenced: the id is not used once more."""
    world.fault = on("create", nth=range(1, 2), fault=Fault("late", seconds=60.0))
    keeper = world.keeper()
    assert await keeper.acquire()

    assert await keeper.release()

    await virtual_seconds(60.0)
    assert not await keeper.acquire()


async def test_release_that_was_not_answered_is_done_by_the_next(world: World) -> None:
    """Else a worker that drains soon after an outage leaves a lease that looks alive."""
    keeper = world.keeper()
    await keeper.acquire()
    world.fault = lambda call: Fault("unsent")
    assert not await keeper.release()
    world.fault = lambda call: None

    assert await keeper.release()

    assert world.lease() is None
    writes = world.writes()
    assert not await keeper.release()
    assert not await keeper.acquire()  # it may have been fenced meanwhile: the id is used up
    assert world.writes() == writes


async def test_release_that_was_not_answered_leaves_a_fence_alone(world: World) -> None:
    """Who was fenced meanwhile deletes nothing, and does not ask a third time."""
    keeper = world.keeper()
    await keeper.acquire()
    world.fault = lambda call: Fault("unsent")
    assert not await keeper.release()
    world.fault = lambda call: None
    world.fence()

    assert not await keeper.release()

    lease = world.lease()
    assert lease is not None
    assert lease.state == "dead"
    calls = len(world.bucket.log)
    assert not await keeper.release()
    assert len(world.bucket.log) == calls


async def test_release_without_a_store(world: World) -> None:
    """Releasing does not wait for a dead store; what is left runs out, and is for others to end."""
    keeper = world.keeper()
    await keeper.acquire()
    world.fault = lambda call: Fault("unsent")

    assert not await keeper.release()
    assert world.now <= TERMS.timeout + 0.1
    assert world.lease() is not None
    await virtual_seconds(5.0)
    world.fault = lambda call: None

    assert not await keeper.acquire()
    stored = world.bucket.read(NAME)
    assert stored is not None
    assert stored.updated == pytest.approx(world.epoch, abs=0.1)
    assert world.losses == []


async def test_stop_writes_nothing(world: World) -> None:
    """A stopped keeper holds nothing, writes nothing and reports nothing; the lease runs out."""
    keeper = world.keeper()
    await keeper.acquire()
    stored = world.bucket.read(NAME)
    assert stored is not None

    keeper.stop()

    assert not keeper.trusted()
    await virtual_seconds(23.0)
    assert world.writes() == 1
    assert world.losses == []
    assert leases.verdict(decode(stored), updated=stored.updated, now=23.0 + world.epoch) == (
        "expired"
    )


async def test_stop_before_the_loss_is_told(world: World) -> None:
    """Whoever has stopped the keeper is not told of a loss that was found at the same moment."""

    def fault(call: Call) -> None:
        if call.verb == "replace":
            world.fence()
        elif call.verb == "read":  # the look at what refused the renewal
            keeper.stop()

    world.fault = fault
    keeper = world.keeper()
    await keeper.acquire()

    await virtual_seconds(60.0)

    assert "fenced" in keeper.lost
    assert world.losses == []


async def test_thief_waits_for_the_deadline(world: World) -> None:
    """In an outage the lease can be taken only after its holder has lost it (promise P11)."""
    keeper = world.keeper()
    await keeper.acquire()
    stored = world.bucket.read(NAME)
    assert stored is not None
    world.fault = lambda call: Fault("unsent")

    while not leases.expired(stored.updated, anyio.current_time(), decode(stored)):
        taken_while_trusted = keeper.trusted()
        await virtual_seconds(0.25)

    assert not taken_while_trusted
    assert world.now > 22.0
    assert [at for _, at in world.losses] == [pytest.approx(18.0, abs=0.01)]


# -- real threads --------------------------------------------------------------------------------

REAL_BACKENDS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@dataclass
class Threaded:
    """A worker whose lease is renewed in a thread, on a clock that the test moves."""

    on_lost: Callable[[str], None] = lambda reason: None
    clock: ClockByHand = field(default_factory=ClockByHand)
    bucket: Bucket = field(init=False)

    def __post_init__(self) -> None:
        self.bucket = Bucket(now=self.clock.system().wall)

    def keeper(self) -> LeaseKeeper:
        return LeaseKeeper(
            store=Store(MemoryBackend(chosen(self.bucket))),
            system=self.clock.system(),
            terms=TERMS,
            record=records.Lease(worker="w1", ttl=0, margin=0, nonce=""),
            on_lost=self.on_lost,
            run_loop=self.clock.run,
            describe_running=lambda: "step 'crunch' of run 'r1'",
        )

    def pass_a_period(self) -> None:
        """Block this thread, its event loop with it, until the lease was renewed once more."""
        count = self.bucket.calls["replace"]
        self.clock.move(TERMS.period)
        until(lambda: self.bucket.calls["replace"] > count)


def lease_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lease of w1"]


def join_lease_threads() -> None:
    for thread in lease_threads():
        thread.join(20.0)
        assert not thread.is_alive()


@REAL_BACKENDS
async def test_blocked_event_loop(caplog: pytest.LogCaptureFixture) -> None:
    """A blocked event loop loses no lease; one warning names what blocks it and for how long."""
    losses = list[str]()
    worker = Threaded(losses.append)
    keeper = worker.keeper()
    caplog.set_level(logging.WARNING, logger="durable")
    assert await keeper.acquire()

    for _ in range(2):
        worker.pass_a_period()
    assert not caplog.records
    for _ in range(3):
        worker.pass_a_period()

    assert keeper.trusted()
    assert await keeper.acquire()
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "event loop of worker w1 has not run for " in warning
    assert "step 'crunch' of run 'r1'" in warning
    assert await keeper.release()
    assert worker.bucket.read(NAME) is None
    assert losses == []


@REAL_BACKENDS
async def test_loss_is_told_in_the_owning_loop() -> None:
    """The thread that finds the fence tells the worker where the worker lives."""
    told = anyio.Event()
    threads: list[int] = []

    def on_lost(reason: str) -> None:
        threads.append(threading.get_ident())
        told.set()

    worker = Threaded(on_lost)
    keeper = worker.keeper()
    assert await keeper.acquire()
    fence(worker.bucket)
    worker.clock.move(TERMS.period)
    with anyio.fail_after(20.0):
        await told.wait()

    assert threads == [threading.get_ident()]
    assert not keeper.trusted()
    assert not await keeper.release()
    join_lease_threads()


def test_thread_ends_with_the_loop() -> None:
    """A lease whose event loop is gone is not renewed any more: it must run out."""
    worker = Threaded()

    async def leave() -> None:
        assert await worker.keeper().acquire()

    anyio.run(leave)

    worker.clock.move(TERMS.period)
    join_lease_threads()
    assert worker.bucket.read(NAME) is not None
    assert worker.bucket.calls["replace"] == 0


def test_forgotten_lease_does_not_keep_the_process() -> None:
    """The renewal's thread is a daemon, so a process that ends does not wait for it."""

    async def look() -> list[bool]:
        keeper = Threaded().keeper()
        assert await keeper.acquire()
        found = [thread.daemon for thread in lease_threads()]
        await keeper.release()
        return found

    assert anyio.run(look) == [True]
