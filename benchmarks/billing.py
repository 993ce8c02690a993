"""What durable asks of a store, as Google would bill it: the rows of the cost table.

Every row is counted in the log of the strict server (`durable.testing.gcs`), in which each HTTP
request that it carried out is a line: its verb, the name it is about, the status of its answer.
The requests are those of the gs:// store. They get there in two ways:

- Over the server's sockets: a row is the requests between two moments of the program.
- As the same bytes without sockets, so that the clock can be virtual (trio's): for what happens
  by the clock, where a row is every request of so many minutes or renewal periods. Jitter is at
  its mean there, so that the counts are the same each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import msgspec

from durable import sleep, step, wait_event, workflow
from durable.client import Client
from durable.client.handles import Handle
from durable.protocol import names
from durable.protocol.leases import TTL_DEFAULT, Terms
from durable.protocol.retries import Retry
from durable.runtime.definitions import Workflows
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.gcs import GcsBackend, Place
from durable.store.gcs.answers import Answer
from durable.store.gcs.http import Request
from durable.store.memory import Bucket
from durable.system import System
from durable.testing.gcs import Direct, Service, serving
from durable.testing.gcs.calls import CallMade, Class, class_of
from durable.testing.virtual import virtual_bucket, virtual_system

# Single region, Standard storage, flat namespace; https://cloud.google.com/storage/pricing.
PRICES_OF = "2026-11-29"
DOLLARS_PER_MILLION = {"A": 5.00, "B": 0.40}

BUCKET = "some-bucket"
HOUR = 3600.0
STEPS = 10  # of each kind in a measured run: what one step costs is their share
KINDS = 4  # that succeeds, fails once, at-most-once, with undo
PERIODS = 90  # of a lease, ten minutes in all: what one costs is its share
SETTLED = 600.0  # seconds after which a worker does only what it does for ever
RESTS_AFTER = 40.0  # seconds: a run and its lease are gone by then, no slow list is due yet

UNBILLED = " 4xx"  # after the verb of requests that were answered so, as polls of the absent are


class Count(dict[str, float]):
    """Requests by verb, those that were answered 4xx apart."""

    @staticmethod
    def of(calls: Iterable[CallMade]) -> Count:
        return Count(Counter(c.verb + UNBILLED * (c.status >= 400) for c in calls))

    def each(self, number: float) -> Count:
        """The share of one of so many."""
        return Count({verb: value / number for verb, value in self.items()})

    def less(self, other: Count) -> Count:
        """What is left of it without the other."""
        left = {verb: self.get(verb, 0) - other.get(verb, 0) for verb in {**self, **other}}
        return Count({verb: value for verb, value in left.items() if value})

    @property
    def a(self) -> float:
        return self._in("A")

    @property
    def b(self) -> float:
        return self._in("B")

    @property
    def free(self) -> float:
        return self._in("free")

    @property
    def unbilled(self) -> float:
        return sum(value for verb, value in self.items() if verb.endswith(UNBILLED))

    def _in(self, billed: Class) -> float:
        verbs = (verb for verb in self if not verb.endswith(UNBILLED))
        return sum(self[verb] for verb in verbs if class_of(verb) == billed)

    @property
    def dollars_per_million(self) -> float:
        return self.a * DOLLARS_PER_MILLION["A"] + self.b * DOLLARS_PER_MILLION["B"]


# -- what is measured ------------------------------------------------------------------------------


class Tape:
    """The server's log, cut at moments.

    Attributes:
        ended: set when the measured workflow function is at its end.
    """

    def __init__(self, log: list[CallMade]) -> None:
        self._log = log
        self._moments: dict[str, int] = {}
        self.ended = anyio.Event()

    def mark(self, moment: str) -> None:
        self._moments[moment] = len(self._log)

    def between(self, since: str, until: str) -> list[CallMade]:
        """Every call between two moments, but those by the clock and those of the run `warm`."""
        calls = self._log[self._moments[since] : self._moments[until]]
        return [call for call in calls if not _is_of_another_row(call.name)]


def _is_of_another_row(name: str) -> bool:
    by_the_clock = (names.WORKERS, names.PRESENCE, names.WORKER_BELLS)
    return name.startswith(by_the_clock) or name.endswith("-warm")


_tapes: dict[str, Tape] = {}  # by run
_failed: set[int] = set()  # the steps that have failed already


@step(name="billing double")
async def double(number: int) -> int:
    return 2 * number


@step(name="billing stumble", retry=Retry(first=0.001))
async def stumble(number: int) -> int:
    """Fails once."""
    if number not in _failed:
        _failed.add(number)
        raise ValueError("not yet")
    _failed.discard(number)
    return 2 * number


@step(name="billing double at most once", at_most_once=True)
async def double_at_most_once(number: int) -> int:
    return 2 * number


@step(name="billing double with undo", undo=double)
async def double_with_undo(number: int) -> int:
    return 2 * number


@step(name="billing rest")
async def rest(seconds: float) -> None:
    await anyio.sleep(seconds)


@workflow(name="billing measured")
async def measured(run: str) -> None:
    """Marks where its parts begin and end."""
    tape = _tapes[run]
    tape.mark("begun")
    for number in range(STEPS):
        await double(number)
    tape.mark("stepped")
    for number in range(STEPS):
        await stumble(number)
    tape.mark("stumbled")
    for number in range(STEPS):
        await double_at_most_once(number)
    tape.mark("stepped at most once")
    for number in range(STEPS):
        await double_with_undo(number)
    tape.mark("stepped with undo")
    tape.ended.set()


@workflow(name="billing resting")
async def resting(seconds: float) -> None:
    await rest(seconds)


@workflow(name="billing sleeping")
async def sleeping(seconds: float) -> None:
    await sleep(seconds)


@workflow(name="billing asking")
async def asking() -> object:
    return await wait_event("answer", timeout="30d")


@workflow(name="billing nothing")
async def nothing() -> None: ...


# Not all that are registered: tests of other things have schedules, which cost a look.
SERVED: Workflows = {w.name: w.definition for w in (measured, resting, sleeping, asking, nothing)}


# -- over sockets ----------------------------------------------------------------------------


@asynccontextmanager
async def _served() -> AsyncIterator[tuple[Store, Tape]]:
    """A store on a server of its own."""
    with serving(Service({BUCKET: Bucket()})) as server:
        store = Store(GcsBackend(Place(BUCKET, "", "", server.url, anonymous=True)))
        try:
            yield store, Tape(server.service.calls.log)
        finally:
            await store.aclose()


def _options(*queues: str) -> Options:
    """So long a lease that no renewal falls into what is measured."""
    return Options(queues=queues, grace=0, terms=Terms.of(HOUR))


async def starting() -> dict[str, Count]:
    """`client.start`: the first of a process, on an idle system, and while a bell rings."""
    async with _served() as (store, tape), Client(store) as client:
        tape.mark("new")
        await store.check()
        tape.mark("idle")
        await client.start(measured, "a")
        tape.mark("ringing")
        await client.start(measured, "b")
        tape.mark("end")
    return {
        "a process's first start or run: its look at the bucket": Count.of(
            tape.between("new", "idle")
        ),
        "start from a client, idle system": Count.of(tape.between("idle", "ringing")),
        "start from a client, the bell rings": Count.of(tape.between("ringing", "end")),
    }


async def running() -> dict[str, Count]:
    """`client.run`, part by part; a run before it has taken the process's lease."""
    async with _served() as (store, tape):
        async with Client(store, options=_options()) as client:
            await _measure(client.run, "warm", Tape([]))
            tape.mark("asked")
            await _measure(client.run, "r", tape)
        tape.mark("closed")  # by then the marker's delete, which nobody waits for, is done
    steps = {
        kind: Count.of(tape.between(since, until)).each(STEPS)
        for kind, since, until in (
            ("a step that succeeds", "begun", "stepped"),
            ("a step that fails once", "stepped", "stumbled"),
            ("an at-most-once step", "stumbled", "stepped at most once"),
            ("a step with undo", "stepped at most once", "stepped with undo"),
        )
    }
    stumbling = steps.pop("a step that fails once")
    return {
        "start and run in one process": Count.of(tape.between("asked", "begun")),
        **steps,
        "a failed attempt": stumbling.less(steps["a step that succeeds"]),
        "finishing": Count.of(tape.between("stepped with undo", "closed")),
    }


async def picking_up() -> dict[str, Count]:
    """A worker takes a run that a client has started: what it asks about that run."""
    async with (
        _served() as (store, tape),
        Client(store) as client,
        anyio.create_task_group() as tasks,
    ):
        worker = Worker(store, SERVED, _options("default"))
        await tasks.start(worker.run)
        await _measure(client.start, "r", tape)
        tape.mark("started")
        worker.nudge()
        await tape.ended.wait()
        worker.stop()
    run = [
        call
        for call in tape.between("started", "begun")
        if call.name == names.marker("default", "r") or call.name.startswith(names.run_folder("r"))
    ]
    return {"a worker picks up a run": Count.of(run)}


async def waiting() -> dict[str, Count]:
    """One look for the outcome of a run that is not over."""
    async with _served() as (store, tape), Client(store) as client:
        handle = await client.start(resting, 0.0)
        tape.mark("started")
        with suppress(TimeoutError):
            await handle.result(timeout=0)
        tape.mark("looked")
    return {"waiting for a result elsewhere, a look": Count.of(tape.between("started", "looked"))}


async def reading() -> dict[str, Count]:
    """Somebody asks for the steps of a run: all of its records come with one list."""
    async with _served() as (store, tape):
        async with Client(store, options=_options()) as client:
            await _measure(client.run, "r", tape)
        async with Client(store) as client:
            handle = await client.get("r")
            tape.mark("found")
            assert len(await handle.steps()) == KINDS * STEPS
            tape.mark("read")
    return {f"reading the {KINDS * STEPS} steps of a run": Count.of(tape.between("found", "read"))}


async def _measure(begin: Callable[..., Awaitable[object]], run: str, tape: Tape) -> None:
    _tapes[run] = tape
    await begin(measured.options(id=run), run)


# -- by the clock ----------------------------------------------------------------------------------


class BilledBackend(GcsBackend):
    """The gs:// store at a strict server of its own, without sockets, for a virtual clock.

    Attributes:
        system: for the stores on it.
        log: what the server was asked.
    """

    def __init__(self, system: System | None = None) -> None:
        self.system = system or _without_chance()
        service = Service({BUCKET: virtual_bucket()}, now=self.system.wall)
        self.log = service.calls.log
        super().__init__(
            Place(BUCKET, endpoint="http://nowhere", anonymous=True),
            system=self.system,
            transport=_TakingTurns(service, self.system),
        )


class _TakingTurns(Direct):
    """Others run while a request is on its way, as they do with sockets."""

    async def ask(self, request: Request) -> Answer:
        await anyio.lowlevel.checkpoint()
        return await super().ask(request)


def _without_chance() -> System:
    return msgspec.structs.replace(virtual_system(), uniform=lambda a, b: (a + b) / 2)


async def holding(runs: int = 20) -> dict[str, Count]:
    """So many runs in flight, per ttl/3: in a process that runs its own, and in a worker."""
    alone, shared = BilledBackend(), BilledBackend()
    options = Options(queues=(), renew_in_thread=False)
    async with client_of(alone, options) as client, anyio.create_task_group() as tasks:
        for _ in range(runs):
            tasks.start_soon(client.run, resting, 10 * HOUR)
        by_client = await _periods(alone)
        tasks.cancel_scope.cancel()
    async with client_of(shared) as client, worker_of(client.store, runs) as worker:
        for _ in range(runs):
            await client.start(resting, 10 * HOUR)
        by_worker = await _periods(shared)
        assert len(worker.runners) == runs
        lease = [call for call in by_worker if call.name == names.worker(worker.id)]
    return {
        "a process that holds its own runs, per ttl/3": Count.of(by_client).each(PERIODS),
        "a worker that holds runs, per ttl/3: lease": Count.of(lease).each(PERIODS),
        "a worker that holds runs, per ttl/3: all": Count.of(by_worker).each(PERIODS),
    }


async def idling() -> dict[str, Count]:
    """A worker without work, per minute."""
    backend = BilledBackend()
    async with client_of(backend) as client, worker_of(client.store):
        return {"an idle worker, per minute": Count.of(await _an_hour(backend)).each(60)}


async def watching() -> dict[str, Count]:
    """A worker without work, per ttl: its looks at the lease of one that holds a run."""
    backend = BilledBackend()
    async with client_of(backend) as client, worker_of(client.store) as busy:
        await client.start(resting, 10 * HOUR)
        await anyio.sleep(1.0)
        async with worker_of(client.store):
            hour = await _an_hour(backend)
    looks = [c for c in hour if (c.verb, c.name) == ("get", names.worker(busy.id))]
    ttls = HOUR / TTL_DEFAULT
    return {"an idle worker's looks at a neighbour, per ttl": Count.of(looks).each(ttls)}


async def parking(runs: int = 20) -> dict[str, Count]:
    """The same beside runs that sleep, wait for an event or, unfit for the code, for a human."""
    backend = BilledBackend()
    other = {resting.name: msgspec.structs.replace(measured.definition, name=resting.name)}
    async with client_of(backend) as client, worker_of(client.store, runs, {**SERVED, **other}):
        for number in range(runs):
            await client.start(resting.options(id=f"unfit-parked-{number}"), 0.0)
            await client.start(sleeping.options(id=f"asleep-parked-{number}"), 10 * HOUR)
            await client.start(asking.options(id=f"asking-parked-{number}"))
        hour = await _an_hour(backend)
        found = Counter([str(run.status) async for run in client.list()])
        assert found == {"needs-attention": runs, "parked": 2 * runs}
    theirs = [call for call in hour if "-parked-" in call.name]
    return {
        "a parked run, per minute": Count.of(theirs).each(60 * 3 * runs),
        f"an idle worker beside {3 * runs} parked runs, per minute": Count.of(hour).each(60),
    }


async def sleeping_long() -> dict[str, Count]:
    """A run that sleeps for an hour: what it costs more than one that does nothing."""
    asleep = await _lone(sleeping.options(id="lone"), HOUR)
    nap = _what_it_adds(asleep, await _lone(nothing.options(id="lone")))
    return {
        "a long sleep, parked and woken": nap.own,
        "a long sleep, parked and woken, all told": nap.told,
    }


async def asking_long() -> dict[str, Count]:
    """A run to which an event is sent after an hour: what it costs more than one of nothing."""

    async def answer(handle: Handle[object]) -> None:
        await handle.send("answer", "yes")

    asked = await _lone(asking.options(id="lone"), then=answer)
    wait = _what_it_adds(asked, await _lone(nothing.options(id="lone")))
    return {
        "an event wait, parked and woken": wait.own,
        "an event wait, parked and woken, all told": wait.told,
    }


class _Added(NamedTuple):
    """What a run costs more than another.

    Attributes:
        own: of requests that name the run, ring a bell or find one, or list timers.
        told: of all requests of the two hours.
    """

    own: Count
    told: Count


def _what_it_adds(run: list[CallMade], other: list[CallMade]) -> _Added:
    own = [Count.of(filter(_is_of_a_lone_run, calls)) for calls in (run, other)]
    return _Added(own[0].less(own[1]), Count.of(run).less(Count.of(other)))


def _is_of_a_lone_run(call: CallMade) -> bool:
    if call.name == names.queue_bell("default"):
        return call.status < 400  # the looks at absent bells go on without it
    return "lone" in call.name or call.name == names.TIMERS


async def _lone(
    run: Any, *args: object, then: Callable[[Handle[Any]], Awaitable[None]] | None = None
) -> list[CallMade]:
    """Every call of two hours of an idle worker that gets one run, which is over by then."""
    backend = BilledBackend()
    async with client_of(backend) as client, worker_of(client.store):
        await anyio.sleep(SETTLED)
        before = len(backend.log)
        handle = await client.start(run, *args)
        await anyio.sleep(HOUR)
        if then is not None:
            await then(handle)
        await anyio.sleep(HOUR)
        calls = backend.log[before:]
        assert str(await handle.status()) == "completed"
    return calls


async def waking() -> dict[str, Count]:
    """One run of one step that wakes an idle worker: every call of both, until it rests again."""
    backend = BilledBackend()
    async with client_of(backend) as client, worker_of(client.store) as worker:
        await anyio.sleep(SETTLED)
        before = len(backend.log)
        await client.start(resting, 0.0)
        await anyio.sleep(RESTS_AFTER)
        assert not worker.runners
        own = {names.WORKERS, names.presence(worker.id)}  # what it asks without work too
        calls = [call for call in backend.log[before:] if call.name not in own]
    return {"a lone run of one step that wakes a worker, all told": Count.of(calls)}


async def _periods(backend: BilledBackend) -> list[CallMade]:
    """Every call of `PERIODS` renewal periods, once what was started is under way."""
    await anyio.sleep(SETTLED)
    before = len(backend.log)
    await anyio.sleep(PERIODS * Options().terms.period)
    return backend.log[before:]


async def _an_hour(backend: BilledBackend) -> list[CallMade]:
    """Every call of an hour, once what was started is under way."""
    await anyio.sleep(SETTLED)
    before = len(backend.log)
    await anyio.sleep(HOUR)
    return backend.log[before:]


@asynccontextmanager
async def client_of(
    backend: BilledBackend, options: Options | None = None
) -> AsyncIterator[Client]:
    store = Store(backend, system=backend.system)
    async with Client(store, options=options) as client:
        yield client


@asynccontextmanager
async def worker_of(
    store: Store, room: int = 1, served: Workflows | None = None
) -> AsyncIterator[Worker]:
    options = Options(renew_in_thread=False, grace=0, concurrency=room)
    worker = Worker(store, served or SERVED, options)
    async with anyio.create_task_group() as tasks:
        await tasks.start(worker.run)
        yield worker
        worker.stop()
