"""Assertions about what is recorded of a run, with messages that show both sides."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from durable.client import StepSummary


def compare_steps(run: str, recorded: Sequence[StepSummary], expected: Iterable[str]) -> None:
    """Raise AssertionError unless exactly these paths are recorded, in this order."""
    if isinstance(expected, str):
        expected = [expected]
    wanted, found = list(expected), [step.path for step in recorded]
    if wanted == found:
        return
    outcomes = {step.path: step for step in recorded}
    lines = []
    for line in difflib.ndiff(wanted, found):
        mark, path = line[:1], line[2:]
        if mark == "?":
            continue
        said = {"-": "  (not recorded)", "+": f"  ({_said(outcomes.get(path))})"}.get(mark, "")
        lines.append(f"  {mark} {path}{said}")
    raise AssertionError(
        f"run {run!r} has other steps than expected (- expected, + recorded):\n" + "\n".join(lines)
    )


def _said(step: StepSummary | None) -> str:
    if step is None:
        return "recorded"
    return step.error or f"{step.outcome} {step.value!r}"
