"""Runs random programs through real executions, crashes them at store calls, checks the law.

A `Line` is one run and its line of owners: each lists the facts, claims an epoch and executes,
until one of them finishes. A crash stops an owner at a chosen store call; what it had under way
is lost, or lands later. A crashed owner may live on as a zombie that has lost its lease.

The law (S9, P1): what the program receives, in order, in one execution begins or continues what
it receives in every other; no path ever has two outcomes; no body of a recorded call runs; nothing
asks for other arguments; everything ends. What an execution receives counts as far as it follows
from recorded outcomes alone: those of cheap steps are recorded later.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import msgspec

import durable
from durable.decorators import step, workflow
from durable.errors import RunCancelled
from durable.protocol import names, records
from durable.protocol.journal import seen as seen_of
from durable.protocol.records import Cancel, Epoch, Group, Start, Step, Undo
from durable.protocol.retries import Retry
from durable.runtime import undoing
from durable.runtime.closing import Closing, Finished, LateRecord, Stopped
from durable.runtime.execution import Execution
from durable.runtime.facts import Facts, load
from durable.runtime.scopes import Scope, current, here
from durable.runtime.surroundings import Progress, Surroundings
from durable.store import Store, Written
from durable.store.memory import Bucket, MemoryBackend
from durable.system import System
from tests.virtual_time import virtual_seconds

RUN = "run"
OWNERS_MAX = 40  # of one line; more means that it makes no progress


class Broken(AssertionError):
    """The law does not hold."""


# -- crashes -------------------------------------------------------------------------------------


class Crash(NamedTuple):
    """Where an owner stops.

    Attributes:
        call: at which of its store calls, from 1; 0 is never.
        applied: the call has taken effect, its answer is lost.
        late: what else it has under way lands after its successor's list, by this chance.
        zombie: it lives on, without its lease, beside its successor.
    """

    call: int = 0
    applied: bool = False
    late: float = 0.0
    zombie: bool = False


class Pending:
    """A create under way."""

    def __init__(self, apply: Callable[[], Written | None]) -> None:
        self.apply = apply
        self.answered = anyio.Event()
        self.written: Written | None = None

    def land(self) -> None:
        self.written = self.apply()
        self.answered.set()


class CrashingBackend(MemoryBackend):
    """The memory store with latencies in turns, for one owner that crashes at one call."""

    def __init__(self, bucket: Bucket, chance: random.Random, crash: Crash) -> None:
        super().__init__(bucket)
        self.chance = chance
        self.crash = crash
        self.calls = 0
        self.dead = False
        self.on_crash: Callable[[], None] = lambda: None
        self.under_way: list[Pending] = []

    async def create(
        self, name: str, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        self.calls += 1
        pending = Pending(lambda: self.bucket.create(name, body, meta, inline))
        if self.dead:
            await anyio.sleep_forever()
        self.under_way.append(pending)
        if self.calls == self.crash.call:
            if self.crash.applied:
                self.under_way.remove(pending)
                pending.land()
            self.dead = True
            self.on_crash()
        else:
            await self._latency()
        if not self.dead:
            self.under_way.remove(pending)
            pending.land()
            await self._latency()
        await pending.answered.wait()
        return pending.written

    async def _latency(self) -> None:
        if self.chance.random() < 0.15:
            await virtual_seconds(self.chance.uniform(0, 1))
        for _ in range(self.chance.choice([0, 1, 2, 3, 5, 9, 20])):
            await anyio.lowlevel.checkpoint()

    def land_all(self) -> None:
        """What was under way at the crash takes effect, in any order."""
        self.chance.shuffle(self.under_way)
        for pending in self.under_way:
            if self.chance.random() < self.crash.late:
                pending.land()
        self.under_way.clear()


# -- one execution, observed ---------------------------------------------------------------------


@dataclass
class Seen:
    """What happened in one execution, as the program and the engine saw it.

    Attributes:
        unrecorded: calls whose outcomes are in memory alone, and how long the log was when they
            were handed over. What follows counts once they are recorded.
    """

    epoch: int
    recorded: frozenset[str]
    log: list[Any] = field(default_factory=list)
    outcomes: list[tuple[str, str]] = field(default_factory=list)
    told: set[str] = field(default_factory=set)  # what was recorded or replayed, by path
    timeline: list[str] = field(default_factory=list)
    unrecorded: dict[str, int] = field(default_factory=dict)
    is_open: Callable[[], bool] = lambda: True
    closing: Closing | None = None
    calls: int = 0

    @property
    def counts(self) -> list[Any]:
        """The part of the log that follows from recorded outcomes alone."""
        return self.log[: min(self.unrecorded.values(), default=len(self.log))]


class Observed(Execution):
    """Tells in which order outcomes are handed over."""

    seen: Seen

    async def perform_step(self, call: Any, branch: Any) -> Any:
        try:
            outcome, value = await super().perform_step(call, branch)
        finally:  # an abandoned call has an outcome, too
            if call.grouped and call.path not in self.seen.told:
                self.seen.unrecorded[call.path] = len(self.seen.log)
        content = str(outcome.failure.message) if outcome.failure else repr(value)
        self.seen.outcomes.append((call.path, f"{outcome.outcome} {content}"))
        return outcome, value


class Vocabulary:
    """The words that programs are written in, for one execution."""

    def __init__(self, line: Line, observed: Callable[[], Seen]) -> None:
        self.line = line
        self.observed = observed

    def words(self) -> dict[str, Any]:
        return {
            "anyio": anyio, "asyncio": asyncio, "RunCancelled": RunCancelled,
            **STEPS,
            "note": self.note, "through": through, "log": self.log, "seen": self.seen,
            "pick": self.pick, "names": described, "leaves": leaves, "sub": sub,
            "gather": durable.gather, "dmap": durable.map,
        }  # fmt: skip

    def log(self, entry: Any) -> None:
        seen = self.observed()
        scope = here.get()
        if self.line.has_timeouts and isinstance(scope, Scope) and scope.is_decided():
            # Whether a bare timeout ended before the decision that closed the branch is chance.
            return
        if seen.is_open():  # what unwinding code says does not count
            seen.log.append(entry)
            seen.timeline.append(f"        log {entry!r}")

    def seen(self) -> str:
        """Everything logged so far, as an argument: another order is another argument."""
        return f"{zlib.crc32(repr(self.observed().log).encode()):08x}"

    def pick(self, n: int) -> int:
        return zlib.crc32(repr(self.observed().log).encode()) % n

    async def note(self, awaitable: Awaitable[Any]) -> Any:
        try:
            value = await awaitable
        except ValueError as e:
            self.log(str(e))
            raise
        except RunCancelled:
            self.log("run cancelled")
            raise
        except anyio.get_cancelled_exc_class():
            self.log("cancelled")
            raise
        self.log(value)
        return value


async def through(awaitable: Awaitable[Any]) -> Any:
    """One more coroutine between a call and its reader."""
    return await awaitable


def described(outcomes: list[Any]) -> list[Any]:
    return [repr(o) if isinstance(o, BaseException) else o for o in outcomes]


def leaves(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaves(member)
    else:
        yield str(error)


def sub(number: int) -> Any:
    return workflow(name=f"sub{number}")


BODIES: dict[str, Callable[[], Awaitable[None]]] = {}  # by run: how a body passes time


async def _body() -> None:
    await BODIES[current().run_id]()


@step(name="s")
async def _s(i: int, log: str = "") -> str:
    await _body()
    return f"s{i}"


@step(name="f", attempts=1)
async def _f(i: int) -> str:
    await _body()
    raise ValueError(f"f{i}")


@step(name="r", retry=Retry(attempts=3, first=1.0, factor=2.0))
async def _r(i: int) -> str:
    await _body()
    if current().attempt == 1:
        raise ValueError(f"r{i}")
    return f"r{i}"


async def _give_back(i: int, *, result: str | None) -> str:
    await _body()
    if i % 5 == 0:
        raise ValueError(f"kept {i}")
    return f"undone {result}"


@step(name="u", undo=_give_back)
async def _u(i: int) -> str:
    await _body()
    return f"u{i}"


@step(name="c", durability="group")
async def _c(i: int, log: str = "") -> str:
    """A cheap one: another value each time."""
    await _body()
    return f"c{i}-{next(_bodies)}"


_bodies = itertools.count()

_NOTHING = Step("", "", "abandoned", 0, 0, "", 0.0)

STEPS = {"s": _s, "f": _f, "r": _r, "u": _u, "c": _c}


# -- a line of owners ----------------------------------------------------------------------------


class Line:
    """One run of one program: owners that follow each other until one finishes.

    Args:
        cancel: when somebody asks for it to be cancelled, in virtual seconds.
    """

    def __init__(
        self, source: str, seed: int, crashes: list[Crash], cancel: float | None = None
    ) -> None:
        self.source = source
        self.cancel = cancel
        self.seed = seed
        self.has_timeouts = re.search("timeout|_after|wait_for", source) is not None
        self.crashes = crashes
        self.bucket = Bucket(now=lambda: 1000.0 + anyio.current_time(), ordered=True)
        self.executions: list[Seen] = []
        self.values: dict[str, str] = {}
        self.seconds = 0.0  # how long it took until the end
        self._code = compile(source, "<program>", "exec")
        self._tokens = 0
        self._crashed: list[CrashingBackend] = []
        self._executing: Execution | None = None

    async def finish(self) -> None:
        """Owners until the run has an end, and one more that replays all of it."""
        body = records.encode(Start("program", msgspec.Raw(b"{}"), "i", "start"))
        self.bucket.create(names.start(RUN), body, {"nonce": "start"}, True)
        async with anyio.create_task_group() as zombies:
            if self.cancel is not None:
                zombies.start_soon(self._cancel, self.cancel)
            while not self._ended():
                if len(self.executions) > OWNERS_MAX:
                    raise Broken(f"no end after {OWNERS_MAX} owners")
                await self._own(zombies)
            final = self.executions[-1]
            self.seconds = anyio.current_time()
            for dead in self._crashed:
                dead.land_all()
            await self._own(zombies, last=True)
        self._check_replay(final, self.executions[-1])
        self._check_law()

    async def _cancel(self, after: float) -> None:
        await virtual_seconds(after)
        asked = Cancel("cancel", anyio.current_time())
        self.bucket.create(names.cancel(RUN, "i"), records.encode(asked), {}, True)
        if self._executing is not None:
            self._executing.looking.touched()

    def _ended(self) -> bool:
        return bool(self.executions) and isinstance(self.executions[-1].closing, Finished)

    async def _own(self, zombies: anyio.abc.TaskGroup, *, last: bool = False) -> None:
        number = len(self.executions)
        crash = Crash() if last or number >= len(self.crashes) else self.crashes[number]
        chance = random.Random(f"{self.seed} {number}")
        facts = await load(Store(MemoryBackend(self.bucket), patience=None), RUN)
        assert facts is not None
        journal = facts.journal()
        for dead in self._crashed:
            if chance.random() < 0.5:
                dead.land_all()
        epoch = self._claim(facts)
        for dead in self._crashed:
            if chance.random() < 0.5:
                dead.land_all()
        seen = Seen(epoch, frozenset(s.path for s in journal.order))
        self.executions.append(seen)
        seen.timeline.append(
            f"owner {number}, epoch {epoch}, {crash}; "
            f"recorded {[(s.path, s.outcome, s.epoch, s.n) for s in journal.order]}"
        )
        backend = CrashingBackend(self.bucket, chance, crash)
        execution = self._execution(backend, seen, facts, chance)
        self._executing = execution
        lost = anyio.Event()
        concluding = anyio.CancelScope()

        def on_crash() -> None:
            seen.timeline.append("    crash")
            self._crashed.append(backend)
            lost.set()
            if not crash.zombie:
                execution.close(Stopped("lease"))
                concluding.cancel()

        backend.on_crash = on_crash
        ended = anyio.Event()

        async def execute() -> None:
            async with anyio.create_task_group() as its:
                its.start_soon(execution.run_to_end, its.start_soon)
                await execution.end()
            seen.closing = Stopped("lease")
            with concluding:
                seen.closing = await execution.conclude()
            seen.timeline.append(f"    ended: {seen.closing}")
            seen.calls = backend.calls
            ended.set()

        async def wait_ended() -> None:
            await ended.wait()
            lost.set()

        async def wake_up() -> None:
            await lost.wait()
            for _ in range(chance.choice([0, 10, 100, 500])):
                await anyio.lowlevel.checkpoint()
            execution.close(Stopped("lease"))
            if backend.dead:
                concluding.cancel()

        zombies.start_soon(execute)
        zombies.start_soon(wait_ended)
        zombies.start_soon(wake_up)
        await lost.wait()
        if not crash.zombie or not backend.dead:
            await ended.wait()

    def _claim(self, facts: Facts) -> int:
        if not self.executions:
            return 1
        number = max((e.epoch for e in facts.epochs), default=1) + 1
        claim = Epoch(number, "w", "", "takeover", self._token(), 0.0, seen=seen_of(facts.steps))
        name = names.epoch(RUN, "i", number)
        assert self.bucket.create(name, records.encode(claim), {"nonce": claim.nonce}, True)
        return number

    def _token(self) -> str:
        self._tokens += 1
        return f"t{self._tokens}"

    def _execution(
        self, backend: CrashingBackend, seen: Seen, facts: Facts, chance: random.Random
    ) -> Observed:
        async def pass_time() -> None:
            if chance.random() < 0.5:
                await virtual_seconds(chance.uniform(0, 4))
            for _ in range(chance.choice([0, 0, 1, 2, 3, 7, 15])):
                await anyio.lowlevel.checkpoint()

        def observe(run: str, progress: Progress) -> None:
            if progress.kind == "begin" and progress.path in seen.recorded:
                raise Broken(f"{progress.path} is recorded, and its body ran")
            if progress.kind in {"record", "replay"}:
                seen.told.add(progress.path)
                seen.unrecorded.pop(progress.path, None)
            seen.timeline.append(f"    {progress.kind} {progress.path}")

        words = Vocabulary(self, lambda: seen).words()
        exec(self._code, words)
        definition = workflow(name="program")(words["program"]).definition
        BODIES[RUN] = pass_time
        system = System(
            boot=anyio.current_time, wall=anyio.current_time, token=self._token,
            uniform=chance.uniform,
        )  # fmt: skip
        execution = Observed(
            around=Surroundings(
                store=Store(backend, system=system, patience=None),
                system=system,
                trusted=lambda: not backend.dead,
                steps=anyio.CapacityLimiter(1),
                workflows=anyio.CapacityLimiter(1),
                observe=observe,
            ),
            definition=definition, run_id=RUN, instance="i", epoch=seen.epoch,
            journal=facts.journal(), args=(), kwargs={}, cancel=facts.cancel,
            undos=undoing.by_path(facts.undos),
        )  # fmt: skip
        execution.seen = seen
        seen.is_open = lambda: execution.closing is None
        return execution

    # -- the law -----------------------------------------------------------------------------------

    def _check_replay(self, final: Seen, replay: Seen) -> None:
        if replay.closing is None or shown(replay.closing) != shown(final.closing):
            raise Broken(f"the replay ended otherwise: {shown(replay.closing)}")
        if replay.log != final.log:
            raise Broken("the replay of the whole record saw something else")
        # While an abandoned call waits for its timer, bodies start; and what a decision kept from
        # being recorded may be tried again before the decision.
        abandoned = any(s.outcome == "abandoned" for s in self._stored().values())
        if replay.calls and not abandoned and not re.search("dmap|await gather", self.source):
            raise Broken(f"the replay of the whole record wrote {replay.calls} times")

    def _check_law(self) -> None:
        stored = self._stored()
        for seen in self.executions:
            if not isinstance(seen.closing, Finished | LateRecord | Stopped):
                raise Broken(f"ended by {seen.closing}")
            for path, outcome in seen.outcomes:
                if path in seen.unrecorded:
                    continue
                if self.values.setdefault(path, outcome) != outcome:
                    raise Broken(f"{path} was {self.values[path]} and {outcome}")
                if path not in stored:
                    raise Broken(f"{path} was handed over unrecorded")
        self._check_undone(stored)
        longest: list[Any] = []
        for log in sorted((seen.counts for seen in self.executions), key=len):
            if log[: len(longest)] != longest:
                raise Broken(f"two executions parted:\n    {longest}\n    {log}")
            longest = log

    def _check_undone(self, stored: dict[str, Step]) -> None:
        """What was done by a run that did not complete was undone, what was done last first."""
        final = self.executions[-1].closing
        undone = [path for path in stored if path.startswith("undo/")]
        if isinstance(final, Finished) and final.failure is None:
            if undone:
                raise Broken(f"a run that completed undid {undone}")
            return
        for path, done in stored.items():
            if done.name == "u" and done.outcome == "value" and f"undo/{path}" not in stored:
                raise Broken(f"{path} was not undone")
        undone = [path for path in undone if stored.get(path[5:], _NOTHING).outcome == "value"]
        by_turn = sorted((stored[path] for path in undone), key=lambda s: (s.epoch, s.n))
        prefix = names.instance_folder(RUN, "i") + "undo/"
        found = [self.bucket.read(item.name) for item in self.bucket.list(prefix, None).items]
        undos = [msgspec.json.decode(u.body or b"", type=Undo) for u in found if u is not None]
        place = {f"undo/{u.path}": (u.epoch, u.n) for u in undos}
        turns = [place[step.path] for step in by_turn]
        if turns != sorted(turns, reverse=True):
            raise Broken(f"undone in another order than done backwards: {turns}")

    def _stored(self) -> dict[str, Step]:
        steps = [msgspec.json.decode(body, type=Step) for body in self._bodies("steps/")]
        for body in self._bodies("groups/"):
            steps += msgspec.json.decode(body, type=Group).steps
        if len({s.path for s in steps}) < len(steps):
            raise Broken(f"a call has two outcomes: {sorted(s.path for s in steps)}")
        return {s.path: s for s in steps}

    def _bodies(self, kind: str) -> list[bytes]:
        prefix = names.instance_folder(RUN, "i") + kind
        found = [self.bucket.read(item.name) for item in self.bucket.list(prefix, None).items]
        return [stored.body or b"" for stored in found if stored is not None]

    def report(self) -> str:
        lines = [f"seed {self.seed}, {self.crashes}", "", self.source, ""]
        for seen in self.executions:
            lines += seen.timeline
        return "\n".join(lines)


def shown(closing: Closing | None) -> str:
    """What a run came to; messages of cancellations hold addresses of objects."""
    if not isinstance(closing, Finished):
        return repr(closing)
    if closing.cancelled:
        return "cancelled"
    if closing.failure is not None:
        return re.sub("scope .*", "scope", f"{closing.failure.type} {closing.failure.message}")
    return repr(closing.value and bytes(closing.value))
