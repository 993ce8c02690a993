"""How tests run commands the way a reader would: the environment's programs first on PATH."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment() -> dict[str, str]:
    """The tests' own environment, with this interpreter's programs found first.

    Output is unbuffered and plain, as on a pipe that somebody watches.
    """
    programs = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([programs, os.environ["PATH"]]),
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "error",
        "NO_COLOR": "1",
    }


def matches(stated: str, printed: str) -> bool:
    """Whether the output is the stated one, in which `...` stands for anything, lines included."""
    pattern = ".*".join(re.escape(part) for part in stated.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), flags=re.DOTALL) is not None
