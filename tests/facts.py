"""Facts that other threads and processes bring about: the only thing a test waits for."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

SECONDS_MAX = 60.0  # of real time, for a fact that never comes
GLANCE = 0.01  # seconds between two looks


def until(true: Callable[[], bool], what: str = "it never came true") -> None:
    """Block this thread, and its event loop with it, until something is true."""
    deadline = time.monotonic() + SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(GLANCE)  # real: nothing in this process could tell it


async def becomes_true(
    true: Callable[[], bool | Awaitable[bool]], what: str = "it never came true"
) -> None:
    """As `until`, and the event loop goes on meanwhile."""
    with anyio.move_on_after(SECONDS_MAX):
        while True:
            found = true()
            if found if isinstance(found, bool) else await found:
                return
            await anyio.sleep(GLANCE)  # real: nothing in this process could tell it
    raise AssertionError(what)


def is_alive(pid: int) -> bool:
    """Whether that process runs; one that has ended and is not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ignores(pid: int, signal: int) -> bool:
    """Whether that process ignores a signal: what it is sent changes nothing."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) >> (signal - 1) & 1)
