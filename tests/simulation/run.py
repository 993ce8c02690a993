"""Simulate schedules by seed, or each fault at each store call: what `nox -s simulate` runs.

    python tests/simulation/run.py --seeds 1000
    python tests/simulation/run.py --seed 17            one seed, with its timeline
    python tests/simulation/run.py --exhaustive --part 3/40
    python tests/simulation/run.py --exhaustive --resume done.jsonl

With --resume, what is done is kept in that file, and is not done again by the next call.

The last line sums up; the exit code is 1 if a rule was broken.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.simulation.judging import (  # the root must be found first
    Case,
    Tally,
    explained,
    judged,
    single_faults,
    tally,
)
from tests.simulation.ledger import Ledger  # as above
from tests.simulation.reached import STATES  # as above
from tests.simulation.scenarios import SCENARIOS  # as above

Chunk = tuple[int, list[Case]]

CHUNK = 25  # cases that a process judges at once
ROUND = 20  # chunks that a process is given at once
SHOWN_MAX = 3  # failures explained in full


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    if (options.seed is not None and options.seeds is None) or options.call:
        return _one(options)
    began = time.monotonic()
    cases = _exhaustive(options) if options.exhaustive else None
    ledger = Ledger(options.resume, _asked(options), None if cases is None else len(cases))
    total = ledger.sum
    chunks = _left(iter(_seeds(options) if cases is None else cases), ledger)
    for number, part in _in_processes(chunks, options.jobs):
        ledger.add(number, part)
        late = options.minutes and time.monotonic() - began > options.minutes * 60
        if late or len(total.failures) >= options.failures:
            break
    for case, violations in total.failures[:SHOWN_MAX]:
        print(explained(case, violations), end="\n\n")
    for case, violations in total.failures:
        print(f"FAILED {case}: {violations[0]}")
    for state in STATES:
        print(f"{total.states[state]:>7}  {state}")
    print(total.summary(), flush=True)
    return bool(total.failures)


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many seeds")
    parser.add_argument("--seed", type=int, help="the first seed; alone: this one, told in full")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--exhaustive", action="store_true", help="each fault at each store call")
    parser.add_argument("--part", default="0/1", help="only the i-th of n parts: i/n")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep what is done, go on there"
    )
    parser.add_argument("--scenario", action="append", choices=sorted(SCENARIOS))
    parser.add_argument("--call", type=int, default=0, help="with --scenario: at this call")
    parser.add_argument("--fault", help="with --call: this fault")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=10, help="stop after so many")
    return parser.parse_args(argv)


def _one(options: argparse.Namespace) -> int:
    scenario = options.scenario[0] if options.scenario else ""
    case = Case(options.seed or 1, scenario, options.call, options.fault)
    world, violations = judged(case)
    print(explained(case, violations, lines=100_000))
    print(f"trace {world.history.trace()}")
    total = tally([case])
    print(total.summary())
    return bool(violations)


def _seeds(options: argparse.Namespace) -> Iterator[Case]:
    first = options.seed or 0
    numbers: Iterable[int] = count(first)
    if options.seeds is not None or not options.minutes:
        numbers = range(first, first + (options.seeds if options.seeds is not None else 1000))
    for seed in numbers:
        yield Case(seed)


def _exhaustive(options: argparse.Namespace) -> list[Case]:
    """In an order of chance, the same each time: what is cut off has met every scenario."""
    part, of = map(int, options.part.split("/"))
    names = options.scenario or SCENARIOS
    cases = [case for name in names for case in single_faults(name, options.seed or 1)]
    cases = [case for number, case in enumerate(cases, start=1) if number % of == part % of]
    random.Random("exhaustive").shuffle(cases)
    return cases


def _asked(options: argparse.Namespace) -> str:
    """What decides which cases there are, and in which order."""
    kept = {"seed", "exhaustive", "part", "scenario"}
    return repr({name: value for name, value in vars(options).items() if name in kept})


def _left(cases: Iterator[Case], ledger: Ledger) -> Iterator[Chunk]:
    """Numbered chunks of cases but those that were judged before."""
    chunks = enumerate(iter(lambda: list(islice(cases, CHUNK)), []))
    return ((number, chunk) for number, chunk in chunks if not ledger.has(number))


def _in_processes(chunks: Iterator[Chunk], jobs: int) -> Iterator[tuple[int, Tally]]:
    if jobs <= 1:
        _collect_by_hand()
        yield from map(_judged, chunks)
        return
    with get_context("spawn").Pool(jobs, initializer=_collect_by_hand, maxtasksperchild=40) as pool:
        # In rounds, because a pool reads all that it is given at once.
        while some := list(islice(chunks, ROUND * jobs)):
            yield from pool.imap_unordered(_judged, some)


def _collect_by_hand() -> None:
    """What is here stays, and a simulation leaves enough to collect: `tally` does it in between."""
    gc.freeze()
    gc.disable()


def _judged(chunk: Chunk) -> tuple[int, Tally]:
    number, cases = chunk
    return number, tally(cases)


if __name__ == "__main__":
    sys.exit(main())
