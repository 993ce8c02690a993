"""A long simulation that was cut off goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation import run
from tests.simulation.ledger import Ledger

ASKED = ["--exhaustive", "--part", "3/200", "--scenario", "sequential", "--jobs", "1"]


def test_what_is_done_is_not_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second call judges nothing, and says the same as the first."""
    file = tmp_path / "done.jsonl"
    first = run.main([*ASKED, "--resume", str(file)])
    told, kept = capsys.readouterr().out, file.read_text()

    second = run.main([*ASKED, "--resume", str(file)])

    assert (first, second) == (0, 0)
    assert capsys.readouterr().out == told
    assert file.read_text() == kept
    assert "violations=0" in told
    assert "seeds=0" not in told


def test_other_cases_are_not_mixed_in(tmp_path: Path) -> None:
    """A file of other cases is refused instead of added to."""
    file = tmp_path / "done.jsonl"
    Ledger(file, "these", None)

    with pytest.raises(SystemExit, match="other cases"):
        Ledger(file, "those", None)
