"""No test waits for time: a wait that ended because its time was over fails the test.

Event loops and threads may wait for a fact as long as it takes, and a limit on that may be
generous: a wait that something ends is none of these. What is noticed is a sleep, a timer of an
event loop on the machine's clock, or a `wait(timeout)` that nothing came to end. Such a test
belongs on a virtual clock (`tests/runtime/clocks.py`, `durable.testing`), on one that is moved by
hand (`tests/runtime/by_hand.py`), or waits for a fact (`tests/facts.py`).

Short ones are the pace at which facts of other threads and processes are looked for, and the
first pauses between the attempts at a store that fails.
"""

from __future__ import annotations

import selectors
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

LONGEST = 0.25  # seconds

# These renew leases beside what a test does; nothing waits for their next renewal.
BESIDE = ("lease of ", "durable: requests of trio, renewals of leases")

# Its event loop is on a virtual clock, and waits only for threads and processes that do real work.
VIRTUAL = "durable.testing"


class Watch:
    """The waits of all threads that were longer than `longest` seconds, since last asked."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._waits: list[str] = []

    def take(self) -> list[str]:
        """Those noticed, and begin anew."""
        taken, self._waits = self._waits, []
        return taken

    def in_vain(self, seconds: float) -> None:
        """The calling thread has waited for so long, and nothing has ended that but the time."""
        name = threading.current_thread().name
        if seconds > self._longest and not name.startswith(BESIDE):
            stack = "".join(traceback.format_stack(sys._getframe(2), limit=12))
            self._waits.append(f"{name} waited for {seconds:.2f} s\n{stack}")


@contextmanager
def watching(longest: float = LONGEST) -> Iterator[Watch]:
    """While the block lasts, waits for time are noticed. They last as long as ever."""
    watch = Watch(longest)

    def sleep(seconds: float) -> None:
        real_sleep(seconds)
        watch.in_vain(seconds)

    def select(self: Any, timeout: float | None = None) -> Any:
        events = real_select(self, timeout)
        if timeout and not events and threading.current_thread().name != VIRTUAL:
            watch.in_vain(timeout)
        return events

    def wait(self: Any, timeout: float | None = None) -> bool:
        true = real_wait(self, timeout)
        if timeout and not true:
            watch.in_vain(timeout)
        return true

    real_sleep, real_wait = time.sleep, threading.Condition.wait  # real: what is watched
    real_select = selectors.DefaultSelector.select
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", sleep)
        patch.setattr(threading.Condition, "wait", wait)
        patch.setattr(selectors.DefaultSelector, "select", select)
        _watch_trio(watch, patch)
        yield watch


def _watch_trio(watch: Watch, patch: pytest.MonkeyPatch) -> None:
    try:
        import trio
    except ImportError:
        return
    manager: Any = trio._core._run.TheIOManager
    real: Callable[[Any, float], Any] = manager.get_events

    def get_events(self: Any, timeout: float) -> Any:
        events = real(self, timeout)
        if timeout > 0 and not events and threading.current_thread().name != VIRTUAL:
            watch.in_vain(timeout)
        return events

    patch.setattr(manager, "get_events", get_events)
