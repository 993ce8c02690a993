"""The types that users see: right code passes both checkers, wrong code fails in both."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import ROOT

HERE = Path(__file__).parent


def mypy(file: Path) -> dict[int, str]:
    """Each line that mypy reports, with its message."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    found = re.findall(r"^(.*?):(\d+): error: (.*)$", done.stdout, flags=re.MULTILINE)
    elsewhere = [name for name, _, _ in found if (ROOT / name) != file]
    assert not elsewhere, done.stdout
    return {int(line): message for _, line, message in found}


def basedpyright(file: Path) -> dict[int, str]:
    """Each line that basedpyright reports, errors and warnings alike, with its message."""
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    reports = json.loads(done.stdout)["generalDiagnostics"]
    return {r["range"]["start"]["line"] + 1: r["message"] for r in reports}


CHECKERS = [
    pytest.param(mypy, marks=pytest.mark.requires("mypy")),
    pytest.param(basedpyright, marks=pytest.mark.requires("basedpyright")),
]


@pytest.mark.parametrize("check", CHECKERS)
def test_right_code_passes(check: Callable[[Path], dict[int, str]]) -> None:
    """Code that uses the public names as documented has no type error."""
    assert check(HERE / "api.py") == {}


@pytest.mark.parametrize("check", CHECKERS)
def test_wrong_code_fails(check: Callable[[Path], dict[int, str]]) -> None:
    """Each line marked `# error` is reported, and no other line is."""
    file = HERE / "wrong.py"
    lines = file.read_text().splitlines()
    marked = {n for n, line in enumerate(lines, start=1) if line.endswith("# error")}

    reported = check(file)

    assert marked
    assert reported.keys() == marked, reported
