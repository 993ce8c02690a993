"""A run recorded by one process replays in another: other hash seed, other Python version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, environment

PYTHONS = [p for p in os.environ.get("DURABLE_PYTHONS", "").split(os.pathsep) if p]


def executed(python: str, database: Path, seed: int) -> dict[str, Any]:
    """One owner of the run, in a process of its own."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [python, "-m", "tests.runtime.recorder", str(database)],
        env={**environment(), "PYTHONHASHSEED": str(seed), "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def compared(first: str, second: str, database: Path) -> None:
    recorded = executed(first, database, seed=1)
    replayed = executed(second, database, seed=2)

    assert len(recorded["bodies"]) == 1 + 6 + 5 + 6 + 1
    assert replayed["bodies"] == []
    assert replayed["value"] == recorded["value"]
    assert (recorded["epoch"], replayed["epoch"]) == (1, 2)


def test_other_hash_seed(tmp_path: Path) -> None:
    """A new process with another hash seed comes to the same, and runs no body."""
    compared(sys.executable, sys.executable, tmp_path / "durable.db")


@pytest.mark.requires("interpreters")
def test_other_versions(tmp_path: Path) -> None:
    """So does each other version of Python, with what this one recorded and the other way round."""
    for number, python in enumerate(PYTHONS):
        compared(sys.executable, python, tmp_path / f"there{number}.db")
        compared(python, sys.executable, tmp_path / f"back{number}.db")
