"""Between processes and the bucket: every store call travels, and may go wrong on its way.

`Wire` is the store port as one process has it. A call is sent, travels, is carried out by the
bucket, and its answer travels back; whatever happens to the process meanwhile, what was sent
arrives. `Network` asks a plan for the fate of each call (see `faults`) and writes everything
down.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  # its futures; the event loop is a simulated one of asyncio's
import random  # noqa: TID251  # one seed for everything is the point
from collections.abc import Callable
from typing import Any, NamedTuple

from durable.errors import StoreRefused, StoreUnavailable
from durable.store import EVERYTHING, REMOTE_PACE, Backend, Page, Stored, Within, Written
from durable.store.gcs.clock import StoreClock
from durable.store.memory import PAGE_SIZE, Bucket
from durable.testing.simulation.faults import FOREIGN, Fault
from durable.testing.simulation.history import History
from durable.testing.simulation.loop import SimulatedLoop, strand
from durable.testing.simulation.machines import EPOCH, Machine

STORM_SECONDS = 30.0
OUTAGE_SECONDS = 45.0  # longer than a client's patience and than a lease
SHORT_PAGES = 30  # calls

_MUTATIONS = {"create", "replace", "delete", "copy"}

Apply = Callable[[], Any]
Plan = Callable[["Sent"], Fault | None]


class Sent(NamedTuple):
    """A store call about to be sent: `number` counts all calls of the simulation from 1."""

    number: int
    who: str
    verb: str
    name: str


class Wire(Backend):
    """The store as one process has it."""

    pace = REMOTE_PACE

    def __init__(self, network: Network, machine: Machine) -> None:
        self._network = network
        self._machine = machine
        self._clock = StoreClock(machine.system)
        self._checked = False

    async def check(self) -> None:
        """As of a bucket: its settings are read once, and nothing is wrong with them."""
        if not self._checked:
            await self._call("read", "", lambda: None)
            self._checked = True

    async def create(
        self, name: str, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        bucket = self._network.bucket
        made: Written | None = await self._call(
            "create", name, lambda: bucket.create(name, body, meta, inline)
        )
        return made

    async def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        bucket = self._network.bucket
        made: Written | None = await self._call(
            "replace", name, lambda: bucket.replace(name, generation, body, meta, inline)
        )
        return made

    async def read(self, name: str) -> Stored | None:
        bucket = self._network.bucket
        found: Stored | None = await self._call("read", name, lambda: bucket.read(name))
        return found

    async def list(self, prefix: str, token: str | None, within: Within = EVERYTHING) -> Page:
        network = self._network
        limit = network.page_size(self._machine.name)
        page: Page = await self._call(
            "list", prefix, lambda: network.bucket.list(prefix, token, limit, within)
        )
        return page

    async def copy(self, source: str, generation: int, name: str) -> Written | None:
        bucket = self._network.bucket
        made: Written | None = await self._call(
            "copy", name, lambda: bucket.copy(source, generation, name)
        )
        return made

    async def delete(self, name: str, generation: int) -> bool:
        bucket = self._network.bucket
        gone: bool = await self._call("delete", name, lambda: bucket.delete(name, generation))
        return gone

    def now(self) -> float:
        """As the store in a bucket has it, from what its answers say."""
        return self._clock.now()

    async def aclose(self) -> None:
        """Nothing is open."""

    async def _call(self, verb: str, name: str, apply: Apply) -> Any:
        answer, served = await self._network.call(self._machine, verb, name, apply)
        self._clock.saw(served, self._machine.system.boot())
        return answer


class Network:
    """Carries calls to the bucket and answers back.

    Args:
        trusted: whether the process of that name holds a lease, as it believes.
        believes: the same of the process that works under that worker id.

    Attributes:
        plan: the fate of each call.
        latency: seconds of one way, at least and mostly at most.
        counted: how often each fault was met.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        history: History,
        *,
        seed: str,
        trusted: Callable[[str], bool | None],
        believes: Callable[[str], bool | None],
    ) -> None:
        self.bucket = Bucket(now=lambda: EPOCH + loop.now)
        self.latency = (0.004, 0.06)
        self.slow_share = 0.02  # of the ways take up to a second and a half
        self.plan: Plan = lambda sent: None
        self.calls = 0
        self.ttl = 12.0
        self.late_leases: tuple[float, ...] = (0.3, 1.0, 2.5)  # ttls until a late call lands
        self.counted: dict[str, int] = {}
        self.under_way = 0  # calls that nobody waits for any more, and that will land
        self._loop = loop
        self._history = history
        self._trusted = trusted
        self._believes = believes
        self._chance = random.Random(seed)  # noqa: S311  # not for secrets
        self._storm_until = 0.0
        self._outages: dict[tuple[str, str], float] = {}
        self._short: dict[str, int] = {}

    def heal(self) -> None:
        """From now on nothing goes wrong any more."""
        self.plan = lambda sent: None
        self._storm_until = 0.0
        self._outages.clear()
        self._short.clear()

    def page_size(self, who: str) -> int:
        """Most items of one list page for this process now."""
        left = self._short.get(who, 0)
        if left:
            self._short[who] = left - 1
            return 1
        return PAGE_SIZE

    async def call(self, machine: Machine, verb: str, name: str, apply: Apply) -> tuple[Any, float]:
        """One attempt, as `Backend` describes it, and the store's time when it was served."""
        self.calls += 1
        sent = Sent(self.calls, machine.name, verb, name)
        trusted = self._trusted(machine.name)
        self._history.add(machine.name, "call", number=sent.number, verb=verb, name=name,
                          trusted=trusted)  # fmt: skip
        fault = self._fate(sent)
        if fault is not None:
            self._meet(fault, sent)
            await self._befall(fault, machine)
        answer: asyncio.Future[tuple[Any, float]] = self._loop.create_future()
        journey = _Journey(self, self._loop, machine=machine, sent=sent, apply=apply, answer=answer)
        journey.begin(fault)
        return await answer

    def _fate(self, sent: Sent) -> Fault | None:
        if self._loop.now < self._storm_until:
            return "busy"
        until = self._outages.get((sent.who, sent.name), 0.0)
        return "unsent" if self._loop.now < until else self.plan(sent)

    def _meet(self, fault: Fault, sent: Sent) -> None:
        self._history.add(sent.who, "fault", number=sent.number, fault=fault)
        self.counted[fault] = self.counted.get(fault, 0) + 1
        match fault:
            case "busy_storm":
                self._storm_until = self._loop.now + STORM_SECONDS
            case "outage":
                self._outages[sent.who, sent.name] = self._loop.now + OUTAGE_SECONDS
            case "short_pages":
                self._short[sent.who] = SHORT_PAGES
            case "vanished":
                self._vanish(sent)

    def _vanish(self, sent: Sent) -> None:
        """Somebody deletes a hint or a lease, which anybody may."""
        there = self.bucket.peek(sent.name)
        if there is not None and sent.name.startswith(FOREIGN):
            self.bucket.delete(sent.name, there.generation)
            self.changed(Sent(sent.number, "somebody", "delete", sent.name), there, None)

    def changed(self, sent: Sent, before: Stored | None, there: Stored | None) -> None:
        """The bucket carried out a mutation."""
        worker = sent.name.removeprefix("workers/")
        trusts = self._believes(worker) if worker != sent.name else None
        self._history.add(
            sent.who, "mutation", number=sent.number, verb=sent.verb, name=sent.name,
            before=before.generation if before else 0,
            generation=there.generation if there else 0,
            body=(there.body or b"") if there else b"", meta=dict(there.meta) if there else {},
            **({} if trusts is None else {"holder_trusts": trusts}),
        )  # fmt: skip

    async def _befall(self, fault: Fault, machine: Machine) -> None:
        """What happens to the process before its call goes out."""
        match fault:
            case "crash_before":
                machine.kill()
            case "pause_half":
                machine.stop(0.5 * self.ttl)
            case "pause_over":
                machine.stop(1.5 * self.ttl)
            case "pause_long":
                machine.stop(10 * self.ttl)
            case "suspend":
                machine.stop(1.5 * self.ttl, suspend=True)
            case "jump_ahead":
                machine.jump(86_400)
            case "jump_back":
                machine.jump(-86_400)
            case "cancel":
                machine.cancel()
        if not machine.alive:
            await _next_turn()

    def way(self) -> float:
        """Seconds that one way takes."""
        low, high = self.latency
        if self._chance.random() < self.slow_share:
            return self._chance.uniform(high, 1.5)
        return self._chance.uniform(low, high)

    def late(self) -> float:
        """Seconds after which a call lands that nobody waits for any more."""
        return self._chance.choice(self.late_leases) * self.ttl * self._chance.uniform(0.8, 1.2)


async def _next_turn() -> None:
    """Goes on when the process does."""
    loop = asyncio.get_running_loop()
    going: asyncio.Future[None] = loop.create_future()
    loop.call_soon(going.set_result, None)
    await going


class _Journey:
    """One call on its way and back."""

    def __init__(
        self,
        network: Network,
        loop: SimulatedLoop,
        *,
        machine: Machine,
        sent: Sent,
        apply: Apply,
        answer: asyncio.Future[tuple[Any, float]],
    ) -> None:
        self._network = network
        self._loop = loop
        self._machine = machine
        self._sent = sent
        self._apply = apply
        self._answer = answer
        self._place = strand.get()

    def begin(self, fault: Fault | None) -> None:
        loop, way = self._loop, self._network.way
        arrives = loop.now + way()
        match fault:
            case "unsent" | "outage" | "truncated":
                self._lost(arrives)
            case "busy" | "busy_storm":
                self._fails(arrives, StoreUnavailable("the store is busy (429)"))
            case "refused":
                self._fails(arrives, StoreRefused("the store refused the credentials (403)"))
            case "late":
                self._land_late()
                self._lost(arrives)
            case "late_crash":
                self._land_late()
                loop.at(loop.now, loop.world, self._machine.kill)
            case "reply_lost":
                loop.at(arrives, loop.world, self._carry_out)
                self._lost(arrives + way())
            case "twice":
                loop.at(arrives, loop.world, self._carry_out)
                loop.at(arrives + way(), loop.world, self._serve)
            case "crash_applied":
                loop.at(arrives, loop.world, self._carry_out)
                loop.at(arrives, loop.world, self._machine.kill)
            case "crash_answered":
                loop.at(arrives, loop.world, self._serve, 0.001)
            case _:
                loop.at(arrives, loop.world, self._serve)

    def _land_late(self) -> None:
        def land() -> None:
            self._network.under_way -= 1
            self._carry_out()

        self._network.under_way += 1
        self._loop.at(self._loop.now + self._network.late(), self._loop.world, land)

    def _carry_out(self) -> Any:
        """What the bucket does with the call; written down if it changes anything."""
        sent, bucket = self._sent, self._network.bucket
        before = bucket.peek(sent.name) if sent.verb in _MUTATIONS else None
        answer = self._apply()
        if sent.verb in _MUTATIONS and answer is not None and answer is not False:
            there = bucket.peek(sent.name)
            if there is not before:
                self._network.changed(sent, before, there)
        return answer

    def _serve(self, then_dies_after: float | None = None) -> None:
        answer = self._carry_out()
        served = self._network.bucket.now()
        back = self._loop.now + self._network.way()
        self._loop.at(back, self._place, self._arrives, answer, served)
        if then_dies_after is not None:
            self._loop.at(back + then_dies_after, self._loop.world, self._machine.kill)

    def _arrives(self, answer: Any, served: float) -> None:
        if not self._answer.done():
            self._answer.set_result((answer, served))

    def _fails(self, at: float, error: Exception) -> None:
        self._loop.at(at, self._place, self._refuse, error)

    def _lost(self, at: float) -> None:
        self._fails(at, StoreUnavailable(f"no answer to {self._sent.verb} of {self._sent.name!r}"))

    def _refuse(self, error: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)
