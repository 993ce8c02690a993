"""A seed says everything: the same one gives the same history, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.judging import Case, played

ROOT = Path(__file__).parents[2]
SEEDS = range(100)
ELSEWHERE = range(5)  # seeds that another process repeats, under another hash seed

PROGRAM = """
from tests.simulation.judging import Case, played
for seed in range({}, {}):
    print(played(Case(seed)).history.trace())
"""


@pytest.mark.timeout(900)
def test_one_seed_is_one_history() -> None:
    """A hundred seeds, each twice: every store call, body, value and time is the same."""
    for seed in SEEDS:
        first, second = (played(Case(seed)).history for _ in range(2))
        assert first.trace() == second.trace(), f"seed {seed}"
        assert first.events[:50] == second.events[:50]


def test_another_process_sees_the_same() -> None:
    """Neither addresses nor the hashes of strings decide anything."""
    program = PROGRAM.format(ELSEWHERE.start, ELSEWHERE.stop)
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": path},
    ).stdout.split()  # fmt: skip

    assert told == [played(Case(seed)).history.trace() for seed in ELSEWHERE]


def test_seeds_differ() -> None:
    """Different seeds are different schedules."""
    traces = {played(Case(seed)).history.trace() for seed in range(10)}

    assert len(traces) == 10
