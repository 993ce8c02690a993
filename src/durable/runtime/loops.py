"""The event loop of a run, from its own tasks and from threads alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from durable.runtime.turns import clock, waker
from durable.system import thread_id


class Loop:
    """The running event loop.

    Attributes:
        time: tells its time, in its tasks and in the callbacks of `soon`.
    """

    def __init__(self) -> None:
        self.time = clock()
        self._thread = thread_id()
        self._wake = waker()

    def soon(self, callback: Callable[[], object]) -> None:
        """Run a callback in the loop: at once if we are there, else in its turn.

        In a loop that is closed there is nobody to tell.
        """
        if thread_id() == self._thread:
            callback()
        else:
            with contextlib.suppress(RuntimeError):  # how both libraries say that it is closed
                self._wake(callback)
