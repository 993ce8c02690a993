"""Every example runs without credentials and prints what its header says.

The header's `Run:` line is the command, `Prints:` and the lines indented under it the output, in
which `...` stands for anything.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.commands import ROOT, environment, matches

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LINES_MAX = 60


def header(example: Path) -> tuple[str, str]:
    """The command and the output that an example's docstring states."""
    docstring = example.read_text().split('"""')[1]
    command, _, output = docstring.partition("\nRun:")[2].partition("\nPrints:")
    lines = [line.strip() for line in output.strip().splitlines()]
    return command.strip(), "\n".join(lines) + "\n"


def in_empty_folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_prints_what_its_header_says(example: Path, tmp_path: Path) -> None:
    """An example's stated output is its output, from an empty folder, on the default store."""
    command, stated = header(example)

    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=in_empty_folder(tmp_path),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert matches(stated, done.stdout), f"stated:\n{stated}\nprinted:\n{done.stdout}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_is_short_enough_to_read(example: Path) -> None:
    """An example fits on one screen and a half."""
    assert len(example.read_text().splitlines()) <= LINES_MAX


def test_checkout_goes_on_after_ctrl_c(tmp_path: Path) -> None:
    """Interrupted after its second step, the same command goes on at the third."""
    command, stated = header(ROOT / "examples" / "checkout.py")
    folder = in_empty_folder(tmp_path)
    steps = stated.splitlines()[:5]

    first = subprocess.Popen(
        ["bash", "-euc", f"exec {command}"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    seen = [first.stdout.readline().rstrip(), first.stdout.readline().rstrip()]
    first.send_signal(signal.SIGINT)
    rest, errors = first.communicate(timeout=20)
    second = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    told = [*seen, *(line for line in rest.splitlines() if line in steps)]  # more, if we are slow
    assert seen == steps[:2]
    assert told == steps[: len(told)]
    assert first.returncode == 130, errors
    assert "order-1" in errors
    assert second.returncode == 0, second.stderr
    assert [line for line in second.stdout.splitlines() if line in steps] == steps[len(told) :]
