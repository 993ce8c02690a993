"""The rule for absent parts: a skip with a reason, or a failure where the part is promised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT, environment

TEST = """
import pytest

@pytest.mark.requires({part!r})
def test_needs_it():
    pass
"""


def outcome(folder: Path, part: str, required: str) -> str:
    """What pytest prints about one test that needs the part."""
    (folder / "test_part.py").write_text(TEST.format(part=part))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = requires\n")
    env = {**environment(), "DURABLE_REQUIRE": required, "PYTHONPATH": str(ROOT)}
    env.pop("DURABLE_PYTHONS", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "-p", "tests.conftest", "test_part.py"],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("part", "required", "expected"),
    [
        pytest.param("interpreters", "sqlite", "1 skipped", id="absent"),
        pytest.param("interpreters", "sqlite,interpreters", "1 error", id="absent-and-promised"),
        pytest.param("sqlite", "sqlite", "1 passed", id="present"),
        pytest.param("sqlit", "", "1 error", id="misspelt-in-the-test"),
        pytest.param("sqlite", "sqlit", "names unknown parts", id="misspelt-in-the-promise"),
    ],
)
def test_absent_parts(tmp_path: Path, part: str, required: str, expected: str) -> None:
    """Only a part that is absent and not promised is skipped."""
    assert expected in outcome(tmp_path, part, required)
