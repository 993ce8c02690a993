"""What durable asks of a store, as Google would bill it: the rows of the cost table.

Two ways of counting:

- At the HTTP server of `durable.testing.gcs`, in this process but over its sockets: a row is the
  calls that the server carried out between two moments of the program.
- At a bucket in memory on a virtual clock (trio's), polled as a bucket of Google's is: for what
  happens by the clock, where a row is every call of so many minutes or renewal periods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, TypeVar

import anyio
import msgspec

from durable import step, workflow
from durable.client import Client
from durable.protocol import names
from durable.protocol.leases import Terms
from durable.protocol.retries import Retry
from durable.runtime.definitions import Workflows
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store import EVERYTHING, REMOTE_PACE, Page, Store, Stored, Within, Written
from durable.store.gcs import GcsBackend, Place
from durable.store.memory import Bucket, MemoryBackend
from durable.testing.gcs import Service, serving
from durable.testing.gcs.calls import CallMade, class_of
from durable.testing.virtual import virtual_bucket, virtual_system

# Single region, Standard storage, flat namespace; https://cloud.google.com/storage/pricing.
PRICES_OF = "2026-11-29"
DOLLARS_PER_MILLION = {"A": 5.00, "B": 0.40}

BUCKET = "some-bucket"
HOUR = 3600.0
STEPS = 10  # of a measured run: what one step costs is their share
PERIODS = 90  # of a lease, ten minutes in all: what one costs is its share
SETTLED = 600.0  # seconds after which a worker does only what it does for ever
RESTS_AFTER = 40.0  # seconds: a run and its lease are gone by then, no slow list is due yet

T = TypeVar("T")


class Count(NamedTuple):
    """Calls by class; `unbilled` were answered 4xx, as polls of absent objects are."""

    a: float = 0
    b: float = 0
    free: float = 0
    unbilled: float = 0

    @staticmethod
    def of(calls: Iterable[CallMade]) -> Count:
        kinds = Counter("unbilled" if c.status >= 400 else class_of(c.verb) for c in calls)
        return Count(kinds["A"], kinds["B"], kinds["free"], kinds["unbilled"])

    def each(self, number: float) -> Count:
        """The share of one of so many."""
        return Count(*(value / number for value in self))

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
    tape.ended.set()


@workflow(name="billing resting")
async def resting(seconds: float) -> None:
    await rest(seconds)


# Not all that are registered: tests of other things have schedules, which cost a look.
SERVED: Workflows = {w.name: w.definition for w in (measured, resting)}


# -- at the HTTP server ----------------------------------------------------------------------------


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
    stumbling = Count.of(tape.between("stepped", "stumbled")).each(STEPS)
    stepping = Count.of(tape.between("begun", "stepped")).each(STEPS)
    return {
        "start and run in one process": Count.of(tape.between("asked", "begun")),
        "a step that succeeds": stepping,
        "a failed attempt": Count(*(a - b for a, b in zip(stumbling, stepping, strict=True))),
        "finishing": Count.of(tape.between("stumbled", "closed")),
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
            assert len(await handle.steps()) == 2 * STEPS
            tape.mark("read")
    return {f"reading the {2 * STEPS} steps of a run": Count.of(tape.between("found", "read"))}


async def _measure(begin: Callable[..., Awaitable[object]], run: str, tape: Tape) -> None:
    _tapes[run] = tape
    await begin(measured.options(id=run), run)


# -- by the clock ----------------------------------------------------------------------------------


class BilledBackend(MemoryBackend):
    """A bucket in memory that keeps a tape, and is polled as one of Google's is.

    Attributes:
        log: what was asked, as the HTTP server would have noted it.
    """

    pace = REMOTE_PACE

    def __init__(self) -> None:
        super().__init__(virtual_bucket())
        self.log: list[CallMade] = []

    async def create(
        self, name: str, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        return self._note("insert", name, await super().create(name, body, meta, inline), 412)

    async def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        written = await super().replace(name, generation, body, meta, inline)
        return self._note("insert", name, written, 412)

    async def read(self, name: str) -> Stored | None:
        return self._note("get", name, await super().read(name), 404)

    async def list(self, prefix: str, token: str | None, within: Within = EVERYTHING) -> Page:
        return self._note("list", prefix, await super().list(prefix, token, within), 404)

    async def delete(self, name: str, generation: int) -> bool:
        return self._note("delete", name, await super().delete(name, generation), 412)

    def _note(self, verb: str, name: str, answer: T, refusal: int) -> T:
        self.log.append(CallMade(verb, BUCKET, name, 200 if answer else refusal))
        return answer


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
        await anyio.sleep(SETTLED)
        before = len(backend.log)
        await anyio.sleep(HOUR)
        return {"an idle worker, per minute": Count.of(backend.log[before:]).each(60)}


async def parking(runs: int = 20) -> dict[str, Count]:
    """The same beside runs that wait for a human, since their input does not fit the code."""
    backend = BilledBackend()
    other = {resting.name: msgspec.structs.replace(measured.definition, name=resting.name)}
    async with client_of(backend) as client, worker_of(client.store, runs, other):
        handles = [await client.start(resting, 0.0) for _ in range(runs)]
        await anyio.sleep(SETTLED)
        assert {str(await handle.status()) for handle in handles} == {"needs-attention"}
        before = len(backend.log)
        await anyio.sleep(HOUR)
        count = Count.of(backend.log[before:]).each(60)
    return {f"an idle worker beside {runs} parked runs, per minute": count}


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


@asynccontextmanager
async def client_of(
    backend: BilledBackend, options: Options | None = None
) -> AsyncIterator[Client]:
    store = Store(backend, system=virtual_system())
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
