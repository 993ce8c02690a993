"""The work of `recovery`, the same for everybody: steps that leave a trace, and one that kills.

Everything happens in the process's folder: `trace` has a line for every body that began and for
the end; `killed` says that the process has been killed already.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

STEPS = 100
KILLED_IN = 50  # counted from 0
SECONDS = 0.02  # that a step takes
TRACE, KILLED, STANDBY, READY = (Path(n) for n in ("trace", "killed", "standby", "ready"))


def note(word: object) -> None:
    """Add a line: the word and the time."""
    with TRACE.open("a", encoding="ascii") as file:
        file.write(f"{word} {time.time()}\n")  # one write, short enough to be whole


def die_once(number: int) -> None:
    """In the body of a step: kill -9 this process in the middle of the run, the first time.

    Where another process is to stand by, it is waited for.
    """
    note(number)
    if number != KILLED_IN or KILLED.exists():
        return
    while STANDBY.exists() and not READY.exists():
        time.sleep(0.01)
    KILLED.write_text(str(time.time()), encoding="ascii")
    os.kill(os.getpid(), signal.SIGKILL)
