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
        self,
        folder: str | None,
        environment: Mapping[str, str] | None = None,
        *,
        processes: int = 1,
    ) -> dict[str, Any]:
        """What the program reports from a fresh process in a fresh folder.

        Args:
            folder: where that folder is made.
            environment: of the process, beyond this one's.
            processes: how many do it together, in one folder.

        Raises:
            RuntimeError: the program failed; its output says why.
        """
        path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
        more = {"PYTHONPATH": path, "BENCH_PROCESSES": str(processes), **(environment or {})}
        command = [sys.executable, str(HERE / self.program), self.variant, self.shape]
        with tempfile.TemporaryDirectory(dir=folder) as place:
            running = [
                subprocess.Popen(
                    command, cwd=place, env={**os.environ, **more},
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
                for _ in range(processes)
            ]  # fmt: skip
            try:
                return _together([self._figures(process) for process in running])
            finally:  # when one has failed the others would wait for it
                for process in running:
                    process.kill()

    def _figures(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        out, errors = process.communicate(timeout=TIMEOUT)
        if process.returncode:
            raise RuntimeError(f"{' '.join(self)} failed:\n{out}{errors}")
        figures: dict[str, Any] = json.loads(out.splitlines()[-1])
        return figures


def _together(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Of several processes: from the first that began to the last that ended; CPU of all."""
    if len(figures) == 1:
        return figures[0]
    began = min(one["began"] for one in figures)
    ended = max(one["began"] + one["wall"] for one in figures)
    cpu = sum(one["cpu"] for one in figures)
    return {**figures[0], "wall": ended - began, "cpu": cpu}


Rounds = dict[Contender, list[dict[str, Any]]]


def alternate(
    contenders: Sequence[Contender],
    rounds: int,
    measure: Callable[[Contender], dict[str, Any]],
    *,
    peers: Sequence[str] = (),
) -> tuple[Rounds, list[str]]:
    """Everybody once a round, so that what else the machine does meets all alike.

    Args:
        measure: measures one of them once.
        peers: programs that may fail: they are then left out.

    Returns:
        What was measured, in the order of the contenders; why peers were left out.
    """
    found: Rounds = {contender: [] for contender in contenders}
    failed: dict[tuple[str, str], str] = {}  # by program and variant
    for number in range(rounds):
        # Backwards every second time: nobody always comes after the same one.
        for contender in contenders[:: -1 if number % 2 else 1]:
            if contender[:2] in failed:
                continue
            _tell(f"round {number + 1} of {rounds}: {' '.join(contender)}")
            try:
                found[contender].append(measure(contender))
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                if contender.program not in peers:
                    raise
                failed[contender[:2]] = str(e)
    _tell("")
    kept = {c: measured for c, measured in found.items() if c[:2] not in failed}
    return kept, list(failed.values())


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
