"""Random programs, crashed at every store call, resumed until they end (see harness.py).

DURABLE_SEEDS=5000 tries that many programs on each event loop, DURABLE_SEEDS=700:800 those seeds.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from durable.runtime.closing import LateRecord
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.harness import Crash, Line, shown
from tests.runtime.programs import program

SEEDS = 8  # programs tried when nobody asks for more
CANCELS = 4  # moments at which one program is cancelled
CANCELLED_POINTS = 4  # crash points tried for each of these moments


def seeds() -> range:
    first, _, last = os.environ.get("DURABLE_SEEDS", str(SEEDS)).rpartition(":")
    return range(int(first or 0), int(last))


def tried(
    backend: str, source: str, seed: int, crashes: list[Crash], cancel: float | None = None
) -> Line:
    """One line of owners; a failure tells the program and what happened to it."""
    line = Line(source, seed, crashes, cancel)
    try:
        run(backend, line.finish, seed=seed)
    except BaseException as e:
        raise AssertionError(f"{told(e)}\n\n{line.report()}") from e
    return line


def told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(told(member) for member in error.exceptions)
    return f"{type(error).__name__}: {error}"


def a_crash(chance: random.Random, call: int, *, applied: bool) -> Crash:
    return Crash(call, applied, chance.choice([0.0, 0.5, 1.0]), chance.random() < 0.3)


def crash_lines(chance: random.Random, calls: int) -> list[list[Crash]]:
    """A crash before and after each store call takes effect, often followed by more crashes."""
    points = [(call, applied) for call in range(1, calls + 1) for applied in (False, True)]
    lines = []
    for call, applied in points:
        line = [a_crash(chance, call, applied=applied)]
        while chance.random() < 0.5:
            line.append(a_crash(chance, chance.randint(1, 8), applied=chance.random() < 0.5))
        lines.append(line)
    return lines


# Programs leave tasks and coroutines behind; that is their business.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(3600 if "DURABLE_SEEDS" in os.environ else 900)
@pytest.mark.parametrize("backend", BACKENDS)
def test_programs(backend: str) -> None:
    """Every execution of a program sees what every other saw, as far as it came (S9, P1)."""
    happened: Counter[str] = Counter()

    for seed in seeds():
        source = program(seed, native=backend == "asyncio")
        live = tried(backend, source, seed, [])
        for crashes in crash_lines(random.Random(seed), live.executions[0].calls):
            line = tried(backend, source, seed, crashes)
            happened["crashes"] += sum(e.timeline.count("    crash") for e in line.executions)
            happened["late"] += sum(isinstance(e.closing, LateRecord) for e in line.executions)
        happened["programs"] += 1

    print(f"{backend}: {dict(happened)}")
    assert happened["crashes"] > happened["programs"]
    assert happened["late"] > 0


# Programs leave tasks and coroutines behind; that is their business.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(3600 if "DURABLE_SEEDS" in os.environ else 900)
@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_with_cheap_steps(backend: str) -> None:
    """So it is, from what is recorded on, if outcomes are recorded together and later."""
    happened: Counter[str] = Counter()

    for seed in seeds():
        cheap, cancelled = [40, 80][seed % 2], bool(seed // 2 % 2)
        source = program(seed, native=backend == "asyncio", cheap=cheap, cancelled=cancelled)
        chance = random.Random(seed)
        live = tried(backend, source, seed, [])
        at = chance.uniform(0, live.seconds) if cancelled else None
        for crashes in crash_lines(chance, live.executions[0].calls):
            line = tried(backend, source, seed, crashes, at)
            happened["late"] += sum(isinstance(e.closing, LateRecord) for e in line.executions)
            happened["lost"] += sum(len(e.unrecorded) for e in line.executions)

    print(f"{backend}: {dict(happened)}")
    assert happened["late"] > 0
    assert happened["lost"] > 0


# Programs leave tasks and coroutines behind; that is their business.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(3600 if "DURABLE_SEEDS" in os.environ else 900)
@pytest.mark.parametrize("backend", BACKENDS)
def test_cancelled_programs(backend: str) -> None:
    """So it is when the run is cancelled at any time, and its owner crashes at any call then."""
    happened: Counter[str] = Counter()

    for seed in seeds():
        source = program(seed, native=backend == "asyncio", cancelled=True)
        chance = random.Random(seed)
        whole = tried(backend, source, seed, []).seconds
        for _ in range(CANCELS):
            at = chance.uniform(0, whole)
            live = tried(backend, source, seed, [], at)
            happened[shown(live.executions[-1].closing).split()[0]] += 1
            lines = crash_lines(chance, live.executions[0].calls)
            for crashes in chance.sample(lines, min(len(lines), CANCELLED_POINTS)):
                line = tried(backend, source, seed, crashes, at)
                happened["crashes"] += sum(e.timeline.count("    crash") for e in line.executions)

    print(f"{backend}: {dict(happened)}")
    assert happened["cancelled"] > 0
    assert happened["crashes"] > 0


def test_one_seed_is_one_program() -> None:
    """A seed says everything about a program, and its source is Python."""
    for seed in range(20):
        for native in (False, True):
            source = program(seed, native=native)
            assert source == program(seed, native=native)
            compile(source, "<program>", "exec")
