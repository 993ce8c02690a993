"""Random programs of durable waits and decisions: sleeps, events, children, selects, deadlines.

Made as source text, as the programs of the replay fuzz are, of durable words alone: whatever
such a program receives, it receives in the same order on replay, also what it hears while a
decision closes its branch. Several waits for one event, at about the moment when they end, are
what these programs are about.

To import it registers its scenarios.
"""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import anyio

import durable
from durable import gather, step, workflow
from durable.runtime.scopes import Scope, here
from durable.testing.simulation.world import World
from tests.simulation import flows
from tests.simulation.programs import body_at, carried_out
from tests.simulation.scenarios import PARKED, scenario, send
from tests.simulation.witness import Witness
from tests.virtual_time import virtual_seconds

SIZE = 12  # calls a program may make, roughly
DEPTH = 3  # of constructs within constructs
EVENTS = ("a", "b")
SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)  # some waits end at the same moment

Emit = Callable[[int], None]


@step(name="sim.w", retry=flows.QUICK)
async def _work(slot: str, failures: int = 0, seconds: float = 0.0) -> str:
    made = body_at(slot)
    await virtual_seconds(made.seconds + seconds)
    if durable.current().attempt <= failures:
        raise made.error()
    return made.value()


@dataclass
class Writer:
    """Writes one program."""

    chance: random.Random
    lines: list[str] = field(default_factory=list)
    indent: int = 1
    budget: int = SIZE
    names: int = 0
    has_kid: bool = False

    def put(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def seconds(self) -> float:
        return self.chance.choice(SECONDS)

    # -- calls --------------------------------------------------------------------------------

    def call(self, *, alone: bool = False) -> str:
        """Something to await: a durable call, or unless it is to be one alone, a helper of two."""
        self.budget -= 1
        slot = repr(self.name("s"))
        kinds = ["step", "step", "long", "flaky", "event", "event"]
        if not alone:
            kinds += ["nap"] if self.has_kid else ["nap", "kid"]
        match self.chance.choice(kinds):
            case "step":
                return f"work({slot})"
            case "long":
                return f"work({slot}, 0, {self.seconds()})"
            case "flaky":
                return f"work({slot}, 1)"
            case "nap":
                return f"nap({slot}, {self.seconds()})"
            case "kid":
                self.has_kid = True  # one place is enough: it may be in several branches
                return f"kid({slot})"
            case _:
                timeout = self.chance.choice([*SECONDS, PARKED + 5.0])
                return f"wait_event({self.chance.choice(EVENTS)!r}, timeout={timeout})"

    def helper(self, depth: int) -> str:
        name = self.name("h")
        self.put(f"async def {name}(x=0):")
        self.indent += 1
        for _ in range(self.chance.randint(1, 2)):
            self.statement(depth + 1)
        self.put(f"return {name!r}")
        self.indent -= 1
        return name

    def branch(self, depth: int) -> str:
        return f"{self.helper(depth)}()" if self.chance.random() < 0.5 else f"note({self.call()})"

    # -- statements ---------------------------------------------------------------------------

    def statement(self, depth: int) -> None:
        simple: list[Emit] = [self.noted, self.noted, self.branching]
        compound: list[Emit] = [
            self.gathered, self.gathered, self.selected, self.selected, self.within, self.within,
            self.mapped, self.grouped,
        ]  # fmt: skip
        deep = depth >= DEPTH or self.budget <= 0
        self.chance.choice(simple if deep else simple + compound)(depth)

    def noted(self, depth: int) -> None:
        self.put(f"await note({self.call()})")

    def branching(self, depth: int) -> None:
        self.put("if pick(2):")
        self.put(f"    await note({self.call()})")
        self.put("else:")
        self.put(f"    await note({self.call()})")

    def gathered(self, depth: int) -> None:
        parts = ", ".join(self.branch(depth) for _ in range(self.chance.randint(2, 3)))
        self.put(f"log(await gather({parts}))")

    def selected(self, depth: int) -> None:
        parts = [self.branch(depth) if self.chance.random() < 0.5 else self.call()
                 for _ in range(self.chance.randint(1, 2))]  # fmt: skip
        parts.append(f"sleep({self.seconds()})" if self.chance.random() < 0.5 else self.call())
        named = ", ".join(f"b{i}={part}" for i, part in enumerate(parts))
        self.put("try:")
        self.put(f"    log(await select({named}))")
        self.put("except TimeoutError:")
        self.put("    log('in vain')")

    def within(self, depth: int) -> None:
        self.put("try:")
        self.put(f"    async with timeout({self.seconds()}):")
        self.indent += 2
        for _ in range(self.chance.randint(1, 2)):
            self.statement(depth + 1)
        self.indent -= 2
        self.put("except TimeoutError:")
        self.put("    log('late')")

    def mapped(self, depth: int) -> None:
        helper, count = self.helper(depth), self.chance.randint(2, 3)
        self.budget -= 2
        enough = self.chance.choice([None, 1, 2])
        limit = self.chance.randint(1, 3)
        self.put(f"log(await map({helper}, range({count}), limit={limit}, enough={enough}))")

    def grouped(self, depth: int) -> None:
        """Tasks of the program's own: each makes one call, as the rules of places allow."""
        group = self.name("g")
        self.put(f"async with create_task_group() as {group}:")
        self.indent += 1
        for _ in range(self.chance.randint(1, 2)):
            self.put(f"{group}.start_soon(note, {self.call(alone=True)})")
        self.noted(depth)
        self.indent -= 1


class _Words:
    """The vocabulary of a program, for one execution."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def all(self) -> dict[str, Any]:
        return {
            "gather": gather, "map": durable.map, "select": durable.select, "sleep": durable.sleep,
            "timeout": durable.timeout, "wait_event": durable.wait_event, "work": _work,
            "create_task_group": anyio.create_task_group, "nap": self._nap, "kid": self._kid,
            "note": self._note, "log": self._log, "pick": self._pick,
        }  # fmt: skip

    def _log(self, what: Any) -> None:
        self._witness.got(str(what))

    def _pick(self, n: int) -> int:
        return len(self._witness.log) % n

    async def _nap(self, slot: str, seconds: float) -> str:
        """What follows a sleep counts from the next record on: that the sleep is over is none."""
        await durable.sleep(seconds)
        return await _work(slot)

    async def _kid(self, slot: str) -> str:
        scope = here.get()  # a helper may run in several branches
        assert isinstance(scope, Scope)
        place = zlib.crc32(f"{scope.execution.run_id} {scope.prefix}".encode())
        started = await flows.child.start(f"{slot}@{place:x}")
        self._witness.tell("child", value=await started.result())
        return "child"

    async def _note(self, awaitable: Awaitable[Any]) -> Any:
        try:
            value = await awaitable
        except TimeoutError:
            self._log("unheard")
            return None
        self._log(f"event {value}" if str(value).startswith("e") else value)
        return value


@workflow(name="sim.waiting-program")
async def waiting(seed: int) -> Any:
    witness = Witness()
    return await carried_out(witness, _compiled(seed), _Words(witness).all())


def program(seed: int) -> str:
    """The source of one workflow function without arguments, named `program`."""
    writer = Writer(random.Random(seed))
    while writer.budget > 0:
        writer.statement(0)
    return "async def program():\n" + "\n".join(writer.lines) + "\n"


@functools.lru_cache(maxsize=64)  # of the runs of one schedule, and their takeovers
def _compiled(seed: int) -> CodeType:
    return compile(program(seed), "<program>", "exec")


async def heard(world: World, run: str, seed: int) -> None:
    """With some events, at about the moments when its waits are over."""
    chance = world.chance
    await world.start(waiting, run, seed)
    for i in range(12):
        if world.result(run):
            return
        # Parks, wakes and children change the run's marker too, and no object is to get hot.
        pause = chance.choice(SECONDS[3:]) + chance.uniform(-0.4, 0.1)
        await send(world, run, [f"e{i}"], [pause], name=chance.choice(EVENTS))


@scenario
async def waiting_programs(world: World) -> None:
    world.fleet(2, flows.code())
    runs = [f"run{i}" for i in range(3)]
    for run in runs:
        world.ask(heard(world, run, world.chance.getrandbits(32)))
    await world.ended(*runs)
