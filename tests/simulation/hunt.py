"""Hunt for the planted bugs: what `nox -s planted` runs.

    python tests/simulation/hunt.py [--seeds 5000] [NAME ...]

Each bug is looked for in every scenario as it is, then by random schedules in turn with single
faults, until a rule is broken. Faults are tried above all in the scenarios in which the planted
code is called, and at the store calls that follow. The last line is `planted: found=N/N`; the exit
code is 1 if one was not found.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

import tests.simulation.coordination.planted  # noqa: F401  # more bugs
from tests.simulation.judging import Case, judged, single_faults  # as in run.py
from tests.simulation.planted import BUGS, called_at  # as above
from tests.simulation.scenarios import SCENARIOS  # as above

BATCH = 20  # single faults of one scenario that are tried one after the other
FAR = 50  # store calls after which one has nothing to do with a call of planted code


class Found(NamedTuple):
    """Where a bug was found, and by which rule; `case` is empty if it was not."""

    bug: str
    tried: int
    case: str
    violation: str
    seconds: float


def hunt(name: str, cases_max: int) -> Found:
    """Try cases until one breaks a rule."""
    began = time.process_time()
    for tried, case in enumerate(islice(_cases(name), cases_max), start=1):
        with BUGS[name]():
            _, violations = judged(case)
        if violations and not judged(case)[1]:  # and without the bug nothing is wrong
            spent = time.process_time() - began
            return Found(name, tried, str(case), str(violations[0])[:160], spent)
    return Found(name, cases_max, "", "", time.process_time() - began)


def _cases(name: str) -> Iterator[Case]:
    """The scenarios as they are, then seeds and single faults in turn."""
    reaching = list[str]()
    for scenario in SCENARIOS:
        called_at.clear()
        yield Case(1, scenario)
        if called_at:  # whoever asked for the case has played it by now
            reaching.append(scenario)
    for seed, single in zip(count(), _singles(name, reaching or list(SCENARIOS)), strict=False):
        yield Case(seed)
        yield single


def _singles(name: str, reaching: list[str]) -> Iterator[Case]:
    """Single faults: most of them soon after planted code was called, some of them anywhere."""
    chance = random.Random(name)
    for batch in count(1):
        scenario = chance.choice(reaching if batch % 4 else list(SCENARIOS))
        with BUGS[name]():
            called_at.clear()
            cases = list(single_faults(scenario, seed=batch))
        yield from chance.choices(cases, [1 / _distance(case) for case in cases], k=BATCH)


def _distance(case: Case) -> int:
    """How many store calls after a call of planted code it has its fault."""
    before = (case.call - at for at in called_at if case.call - FAR < at < case.call)
    return min(before, default=FAR)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bugs", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--seeds", type=int, default=5000, help="cases tried for each bug")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    names = options.bugs or list(BUGS)
    found = 0
    with get_context("spawn").Pool(options.jobs, maxtasksperchild=4) as pool:
        for result in pool.imap_unordered(_hunt, [(name, options.seeds) for name in names]):
            found += bool(result.case)
            told = f"{result.case}; {result.violation}" if result.case else "NOT FOUND"
            print(f"{result.bug:<48} {result.tried:>5} cases {result.seconds:6.1f} s  {told}",
                  flush=True)  # fmt: skip
    print(f"planted: found={found}/{len(names)}")
    return found != len(names)


def _hunt(task: tuple[str, int]) -> Found:
    return hunt(*task)


if __name__ == "__main__":
    sys.exit(main())
