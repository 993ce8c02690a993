"""A simulated world: one bucket, workers, clients, and what befalls them.

    simulation = simulate(seed, scenario)
    simulation.history.timeline()

`scenario` is an async function that is given the world. It starts workers and runs, makes things
happen, heals the world and waits for the runs to end. Everything in it is virtual: the time, the
machines, the threads, the network. The runtime and the client are the real ones.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  # its futures; the event loop is a simulated one of asyncio's
import random  # noqa: TID251  # one seed for everything is the point
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import anyio

from durable.client import Client
from durable.decorators import WorkflowFunction, workflows
from durable.errors import Conflict, DurableError, StoreError, StoreRefused, StoreUnavailable
from durable.protocol import names
from durable.protocol.leases import Terms
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.identity import Options
from durable.runtime.surroundings import Progress
from durable.runtime.worker import Worker
from durable.store import Store
from durable.testing.simulation import threads
from durable.testing.simulation.history import History
from durable.testing.simulation.isolation import isolated
from durable.testing.simulation.loop import SimulatedLoop, Strand, Stuck, strand
from durable.testing.simulation.machines import Machine
from durable.testing.simulation.network import Network, Wire

T = TypeVar("T")

TTL = 12.0  # seconds; the shortest lease, so that takeovers are soon
PATIENCE = 600.0  # virtual seconds for which a scenario waits for a fact
SETTLING = 20.0  # seconds from the last end to the look at what is left: a lease runs out
SETTLED = 8.0  # the same, if no lease is left that will: a list while there is work takes 6
CLEANED = 200.0  # seconds until what late calls have brought back is gone again
RESTART = (0.5, 3.0)  # seconds until a dead worker is replaced

Scenario = Callable[["World"], Awaitable[None]]


class Member:
    """A worker process of the fleet."""

    def __init__(self, machine: Machine, worker: Worker) -> None:
        self.machine = machine
        self.worker = worker
        self.ended = False
        self.told_to_end = False

    @property
    def trusted(self) -> bool:
        """Whether it believes that it holds its lease now."""
        return self._running and self.worker._holdings.identity.keeper.trusted()

    @property
    def worker_id(self) -> str:
        """The id under which it works now."""
        return self.worker.id if self._running else ""

    @property
    def carries(self) -> bool:
        """Whether it carries a run."""
        return self._running and bool(self.worker.runners)

    def close_files(self) -> None:
        """As the kernel does for a process that ends: its lock file stays, and is free."""
        lock = self.worker._holdings.identity._lock if self._running else None
        if lock is not None:
            lock._close(unlink=False)

    @property
    def _running(self) -> bool:
        return hasattr(self.worker, "_holdings")


@dataclass
class Reply(Generic[T]):
    """What a client was told; nothing if it died."""

    value: T | None = None
    error: Exception | None = None


class SimulatedClient(Client):
    """A client whose code version is not read from files, and which has no threads."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, options=Options(renew_in_thread=False))

    def _code_version(self) -> str:
        self._workflows.update(workflows())
        return "v1"

    def _worker_options(self) -> Options:
        return Options(
            queues=(), grace=0, version="v1", terms=Terms.of(TTL), renew_in_thread=False,
            label=who(), observe=self._observe,
        )  # fmt: skip


class World:
    """See the module's docstring.

    Attributes:
        chance: the scenario's own.
        skew: seconds by which wall clocks of new machines are wrong, at most.
        drift: share by which clocks of new machines run fast or slow, at most.
    """

    def __init__(self, seed: int, loop: SimulatedLoop) -> None:
        self.seed = seed
        self.loop = loop
        loop.world_of = self
        loop.place = self._place
        self.history = History(lambda: round(loop.now, 6))
        self.network = Network(
            loop,
            self.history,
            seed=f"{seed} network",
            trusted=self.trusted,
            believes=self._believes,
        )
        self.network.ttl = TTL
        self.bucket = self.network.bucket
        self.chance = random.Random(f"{seed} scenario")  # noqa: S311  # not for secrets
        self.bodies = random.Random(f"{seed} bodies")  # noqa: S311  # not for secrets
        self.skew = 0.0
        self.drift = 0.0
        self.members: list[Member] = []
        self.tokens = 0
        self.body_seconds = 0.0
        self.restarts = True
        self.machines: dict[str, Machine] = {}
        self._by_machine: dict[str, Member] = {}
        self._files: tempfile.TemporaryDirectory[str] | None = None

    # -- machines ---------------------------------------------------------------------------------

    def machine(self, kind: str) -> Machine:
        """A new machine, with clocks as wrong as this world's are."""
        number = len(self.machines) + 1
        made = Machine(
            f"{kind}{number}", self.loop, self.history,
            seed=f"{self.seed} machine {number}",
            rate=1.0 + self.chance.uniform(-self.drift, self.drift),
            wall_offset=self.chance.uniform(-self.skew, self.skew),
        )  # fmt: skip
        self.machines[made.name] = made
        return made

    def host(self, name: str) -> Path:
        """Where workers on the host of that name keep their lock files, as `runtime_folder`."""
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="durable-simulation-")
        return Path(self._files.name) / name

    def close(self) -> None:
        """Remove what a simulation has left on the real machine."""
        if self._files is not None:
            self._files.cleanup()

    def _place(self, task: str) -> Strand | None:
        """What the runtime runs in a thread of its own has a strand of its own here."""
        if task.endswith("LeaseKeeper._renewal"):
            return self.machines[who()].lease
        return None

    def trusted(self, who: str) -> bool | None:
        member = self._by_machine.get(who)
        return None if member is None else member.trusted

    def _believes(self, worker: str) -> bool | None:
        for member in self.members:
            if not member.machine.dead and not member.ended and member.worker_id == worker:
                return member.trusted
        return None

    def worker(
        self,
        code: Mapping[str, WorkflowDefinition] | None = None,
        *,
        version: str = "v1",
        **options: Any,
    ) -> Member:
        """A new worker process that serves `code`; all workflows that are known by default."""
        machine = self.machine("w")
        store = Store(Wire(self.network, machine), system=machine.system)

        def observe(run: str, progress: Progress) -> None:
            self.history.add(machine.name, "progress", run=run, what=progress.kind,
                             path=progress.path, attempt=progress.attempt)  # fmt: skip

        defaults: dict[str, Any] = {"terms": Terms.of(TTL), "grace": 4.0, "concurrency": 20}
        worker = Worker(
            store,
            workflows() if code is None else code,
            Options(renew_in_thread=False, label=machine.name, version=version, observe=observe,
                **(defaults | options),
            ),
        )  # fmt: skip
        member = Member(machine, worker)
        machine.on_kill = member.close_files
        self.members.append(member)
        if "runtime_folder" in options:
            self.history.add(machine.name, "host", host=options["runtime_folder"].name)

        async def live() -> None:
            with anyio.CancelScope() as scope:
                machine.on_cancel = scope.cancel
                self._by_machine[machine.name] = member
                await _supervised(member)
            if not (scope.cancel_called or member.told_to_end or worker.refusal):
                self.history.add(machine.name, "broken", error="it ended, and nobody had told it")
            member.ended = True
            self.history.happened(machine.name, "ended")

        self.history.happened(machine.name, f"starts, version {version}")
        task = machine.run(live())
        task.add_done_callback(lambda task: self._note_end(member, task))
        return member

    def _note_end(self, member: Member, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        member.ended = True
        member.machine.gone.set()
        if error is not None:
            self.history.add(member.machine.name, "broken", error=repr(error))

    def fleet(self, size: int, *args: Any, **options: Any) -> None:
        """So many workers; each that ends without being told is replaced."""
        for _ in range(size):
            self.loop.begin(self.loop.world, self._keep(args, options))

    async def _keep(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        while True:
            member = self.worker(*args, **options)
            await member.machine.gone.wait()
            await asyncio.sleep(self.chance.uniform(*RESTART))
            if member.told_to_end or not self.restarts:
                return

    def terminate(self, member: Member) -> None:
        """As SIGTERM."""
        member.told_to_end = True
        self.history.happened(member.machine.name, "told to end")
        self.loop.at(self.loop.now, member.machine.main, member.worker.stop)

    # -- clients ----------------------------------------------------------------------------------

    async def client(
        self, what: str, talk: Callable[[Client], Awaitable[T]], run: str = ""
    ) -> Reply[T]:
        """One client process that does something and ends; what it was told is written down."""
        machine = self.machine("c")
        store = Store(Wire(self.network, machine), system=machine.system)
        reply: Reply[T] = Reply()

        async def live() -> None:
            self.history.add(machine.name, "asked", what=what, run=run)
            with anyio.CancelScope() as scope:
                machine.on_cancel = scope.cancel
                try:
                    async with SimulatedClient(store) as client:
                        reply.value = await talk(client)
                        self.history.add(machine.name, "reply", what=what, run=run,
                                         value=reply.value)  # fmt: skip
                except (DurableError, TimeoutError) as e:
                    reply.error = e
                    self.history.add(machine.name, "reply", what=what, run=run,
                                     error=type(e).__name__, message=str(e))  # fmt: skip

        task = machine.run(live())
        task.add_done_callback(lambda task: machine.gone.set())
        await machine.gone.wait()
        if task.done() and not task.cancelled() and task.exception() is not None:
            self.history.add(machine.name, "broken", error=repr(task.exception()))
        return reply

    async def start(
        self, workflow: WorkflowFunction[..., Any], run: str, *args: Any, **options: Any
    ) -> str | None:
        """Start a run as users do: whoever is not told that it started asks again.

        Returns its instance; None if the id belongs to another run.
        """

        async def talk(client: Client) -> str:
            handle = await client.start(workflow.options(id=run, **options), *args)
            return handle.instance

        for _ in range(20):
            reply = await self.client("start", talk, run)
            if reply.value is not None or isinstance(reply.error, Conflict):
                return reply.value
            await asyncio.sleep(self.chance.uniform(0.1, 2))
        raise Stuck(f"run {run!r} could not be started")

    def ask(self, coro: Any) -> asyncio.Task[Any]:
        """Do something beside the scenario."""
        return self.loop.begin(self.loop.world, coro)

    # -- waiting for facts ------------------------------------------------------------------------

    async def until(self, true: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        """Wait for a fact, by looking at the bucket or the history."""
        ends = self.loop.now + patience
        while not true():
            if self.loop.now > ends:
                raise Stuck(f"after {patience:g} s still waiting for {what}")
            await asyncio.sleep(0.5)

    def result(self, run: str) -> bool:
        """Whether the run's present instance is over, by the bucket."""
        instance = self.instance(run)
        return bool(instance) and self.bucket.peek(names.result(run, instance)) is not None

    def instance(self, run: str) -> str:
        """The instance that `start` names now; empty if there is none."""
        start = self.bucket.peek(names.start(run))
        return "" if start is None else _field(start.body, "instance")

    def flagged(self, run: str, queue: str = "default") -> bool:
        """Whether the run needs attention and nobody works on it."""
        return (
            self.bucket.peek(names.attention(queue, run)) is not None
            and self.bucket.peek(names.marker(queue, run)) is None
        )

    async def ended(self, *runs: str) -> None:
        """Wait until these runs have an outcome."""
        await self.until(lambda: all(map(self.result, runs)), f"the ends of {runs}")

    async def settle(self) -> None:
        """Wait for zombies, give everybody time to clean up, then end all workers in good order."""
        self.history.add("world", "phase", what="settling")
        await self.until(self._all_awake, "stopped machines to go on")
        await self.until(lambda: not self.network.under_way, "late calls to land")
        await asyncio.sleep(SETTLING if self._leases_of_the_dead() else SETTLED)
        await self.until(self._is_tidy, "markers and slots of ended runs to go", CLEANED)
        self.restarts = False
        for member in self.members:
            if not (member.machine.dead or member.ended):
                self.terminate(member)
        await self.until(self._all_gone, "workers to end")
        await asyncio.sleep(2)
        self.history.add("world", "rest", left=self.there(), store_time=self.bucket.now())

    def _leases_of_the_dead(self) -> bool:
        """Whether a worker is gone and nobody has found that out yet."""
        alive = {names.worker(member.worker_id) for member in self.alive}
        return any(
            name not in alive and b'"state":"dead"' not in body
            for name, body in self.there().items()
            if name.startswith("workers/")
        )

    def _is_tidy(self) -> bool:
        """Whether no marker is there, and nobody has a slot or waits for one."""
        return not any(
            name.startswith("live/") or "/slots/" in name or "/pending/" in name
            for name in self.bucket.names.since("live/")
        )

    def _all_awake(self) -> bool:
        return not any(m.machine.stopped and not m.machine.dead for m in self.members)

    def _all_gone(self) -> bool:
        return all(m.machine.dead or m.ended for m in self.members)

    def expect(self, run: str, outcome: str) -> None:
        """Tell the checker of a run that does not simply end: `attention`, `either`, `replaced`."""
        self.history.add("world", "expected", run=run, outcome=outcome)

    def heal(self) -> None:
        """Faults stop from now on."""
        self.network.heal()
        self.history.add("world", "phase", what="healed")

    def there(self) -> dict[str, bytes]:
        """All objects, by name."""
        with self.bucket.lock:
            found = [self.bucket.peek(name) for name in self.bucket.names.since("")]
        return {stored.name: stored.body or b"" for stored in found if stored is not None}

    @property
    def alive(self) -> list[Member]:
        """Workers that run now."""
        return [m for m in self.members if m.machine.alive and not m.ended]


async def _supervised(member: Member) -> None:
    """As under a supervisor: a worker that the store did not let begin is started again."""
    while not member.told_to_end:
        try:
            await member.worker.run()
        except (StoreUnavailable, StoreRefused):
            if member._running:
                raise
            await asyncio.sleep(RESTART[0])
        else:
            return


def _field(body: bytes | None, name: str) -> str:
    import msgspec

    return str(msgspec.json.decode(body or b"{}")[name])


def world() -> World:
    """The world in which the running code is: for workflows and bodies that report to it."""
    made = strand.get().loop.world_of
    assert isinstance(made, World)
    return made


def who() -> str:
    """The name of the process that is running."""
    return strand.get().name.partition("/")[0]


def simulate(seed: int, scenario: Scenario) -> World:
    """Run a scenario from beginning to end; the history tells if it got stuck on the way."""
    loop = SimulatedLoop(seed)
    made = World(seed, loop)
    with isolated(), threads.simulated():
        try:
            loop.run_until_complete(loop.begin(loop.world, _main(scenario, made)))
        except Stuck as e:  # nothing happens any more, or something for ever
            _note_stuck(made, e)
        finally:
            told = len(made.history.events)
            threads.end_all()
            loop.abandon()
            loop.close()
            made.close()
            del made.history.events[told:]  # what is closed has nothing to say
    return made


async def _main(scenario: Scenario, made: World) -> None:
    try:
        await scenario(made)
    except (Stuck, StoreError) as e:
        _note_stuck(made, e)


def _note_stuck(made: World, why: Exception) -> None:
    made.history.add("world", "stuck", why=str(why), left=made.there())
