"""Measurements in processes of their own, repeated in alternating rounds."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
TIMEOUT = 600.0  # seconds for one measurement
SOURCE = HERE.parent / "src"


class Contender(NamedTuple):
    """One way to do the work: `program variant`."""

    program: str
    variant: str
    shape: str

    def measure(
        self, folder: str | None, environment: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """What the program reports from a fresh process in a fresh folder.

        Args:
            folder: where that folder is made.
            environment: of the process, beyond this one's.

        Raises:
            RuntimeError: the program failed; its output says why.
        """
        path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
        with tempfile.TemporaryDirectory(dir=folder) as place:
            done = subprocess.run(
                [sys.executable, str(HERE / self.program), self.variant, self.shape],
                cwd=place, env={**os.environ, "PYTHONPATH": path, **(environment or {})},
                capture_output=True, text=True, timeout=TIMEOUT, check=False,
            )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{' '.join(self)} failed:\n{done.stdout}{done.stderr}")
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return figures


Rounds = dict[Contender, list[dict[str, Any]]]


def alternate(
    contenders: Sequence[Contender],
    rounds: int,
    measure: Callable[[Contender], dict[str, Any]],
    *,
    peers: Sequence[str] = (),
) -> tuple[Rounds, dict[str, str]]:
    """Everybody once a round, so that what else the machine does meets all alike.

    Args:
        measure: measures one of them once.
        peers: programs that may fail: they are then left out.

    Returns:
        What was measured, in the order of the contenders; why peers failed, by program.
    """
    found: Rounds = {contender: [] for contender in contenders}
    failed: dict[str, str] = {}
    for number in range(rounds):
        # Backwards every second time: nobody always comes after the same one.
        for contender in contenders[:: -1 if number % 2 else 1]:
            if contender.program in failed:
                continue
            _tell(f"round {number + 1} of {rounds}: {' '.join(contender)}")
            try:
                found[contender].append(measure(contender))
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                if contender.program not in peers:
                    raise
                failed[contender.program] = str(e)
    _tell("")
    return {c: measured for c, measured in found.items() if c.program not in failed}, failed


def median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of what was measured in the same rounds, one divided by the other."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def machine() -> str:
    """The machine in one line, for whoever compares figures."""
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
