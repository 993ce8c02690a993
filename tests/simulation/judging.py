"""One simulated schedule, judged: what a seed or a single fault comes to."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import tests.simulation.children  # has scenarios of its own
import tests.simulation.choices  # as above
import tests.simulation.coordination  # as above
import tests.simulation.grouped  # as above
import tests.simulation.hosts  # as above
import tests.simulation.limits  # as above
import tests.simulation.plain  # as above
import tests.simulation.reuse  # as above
import tests.simulation.waiting  # noqa: F401  # as above
from durable.testing.simulation.faults import FAULTS, Fault, applies
from durable.testing.simulation.network import Sent
from durable.testing.simulation.world import Scenario, World, simulate
from tests.simulation.chaos import chaos
from tests.simulation.checker import Violation, check
from tests.simulation.reached import reached
from tests.simulation.scenarios import SCENARIOS

TIMELINE_KINDS = {
    "body", "ended", "enter", "received", "left", "happened", "fault", "reply", "mutation", "stuck",
    "broken", "phase", "asked",
}  # fmt: skip


COLLECT_EVERY = 5  # cases, where nobody else does: a living world is not traversed in vain


@dataclass(frozen=True)
class Case:
    """What to simulate: a seed of chaos, or a scenario with one fault at one call (0: none)."""

    seed: int
    scenario: str = ""
    call: int = 0
    fault: Fault | None = None

    def __str__(self) -> str:
        if not self.scenario:
            return f"seed {self.seed}"
        return f"scenario {self.scenario}, {self.fault} at call {self.call}, seed {self.seed}"

    @property
    def again(self) -> str:
        """The command that repeats it."""
        if not self.scenario:
            return f"nox -s simulate -- --seed {self.seed}"
        return (
            f"nox -s simulate -- --scenario {self.scenario} --call {self.call} --fault {self.fault}"
        )


@dataclass
class Tally:
    """Sums over many cases, and what was wrong."""

    cases: int = 0
    seconds: float = 0.0  # of CPU
    calls: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[Case, list[Violation]]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.cases += other.cases
        self.seconds += other.seconds
        self.calls += other.calls
        self.counted += other.counted
        self.states += other.states
        self.failures += other.failures

    def summary(self) -> str:
        """The last line of a simulation."""
        rate = self.cases / self.seconds if self.seconds else 0.0
        return (
            f"simulate: seeds={self.cases} takeovers={self.counted['takeovers']} "
            f"zombies={self.counted['zombies']} faults={self.counted['faults']} "
            f"schedules_per_core_s={rate:.1f} violations={len(self.failures)}"
        )


def played(case: Case) -> World:
    """The world as it is when the case has come to its end."""
    scenario: Scenario = SCENARIOS[case.scenario] if case.scenario else chaos
    if not case.call:
        return simulate(case.seed, scenario)

    async def with_fault(world: World) -> None:
        world.network.plan = _one_fault(case)
        await scenario(world)

    return simulate(case.seed, with_fault)


def _one_fault(case: Case) -> Callable[[Sent], Fault | None]:
    def plan(sent: Sent) -> Fault | None:
        return case.fault if sent.number == case.call else None

    return plan


def judged(case: Case) -> tuple[World, list[Violation]]:
    """Play the case and apply every rule to its history."""
    world = played(case)
    return world, check(world.history.events)


def tally(cases: Iterable[Case]) -> Tally:
    """Judge many cases."""
    total = Tally()
    for number, case in enumerate(cases):
        began = time.process_time()
        if number % COLLECT_EVERY == 0 and not gc.isenabled():
            gc.collect()
        world, violations = judged(case)
        total.seconds += time.process_time() - began
        total.cases += 1
        total.calls += world.network.calls
        total.counted += _counts(world)
        total.states += Counter(reached(world.history.events))
        if violations:
            total.failures.append((case, violations))
    return total


def _counts(world: World) -> Counter[str]:
    counts: Counter[str] = Counter(faults=sum(world.network.counted.values()))
    fenced: set[str] = set()
    for event in world.history.events:
        facts = event.facts
        if event.kind == "mutation" and "/epochs/" in facts["name"]:
            counts["takeovers"] += b'"why":"takeover"' in facts["body"]
        elif event.kind == "mutation" and facts["name"].startswith("workers/"):
            if b'"state":"dead"' in facts["body"]:
                fenced.add(facts["body"].decode().partition('"label":"')[2].partition('"')[0])
        elif event.kind == "happened" and facts["what"] == "woken" and event.who in fenced:
            counts["zombies"] += 1
    return counts


def single_faults(name: str, seed: int = 1) -> Iterator[Case]:
    """The scenario with each fault at each of its store calls where it makes a difference."""
    world = played(Case(seed, name))
    for event in world.history.events:
        if event.kind == "call":
            facts = event.facts
            for fault in FAULTS:
                if applies(fault, facts["verb"], facts["name"]):
                    yield Case(seed, name, facts["number"], fault)


def explained(case: Case, violations: list[Violation], *, lines: int = 400) -> str:
    """A failed case for people: what is wrong, how to repeat it, and what happened."""
    world = played(case)
    story = world.history.timeline(TIMELINE_KINDS)
    cut = [f"... {len(story) - lines} earlier lines"] if len(story) > lines else []
    wrong = [f"  {violation}" for violation in violations[:20]]
    return "\n".join([f"{case}: {case.again}", *wrong, *cut, *story[-lines:]])
