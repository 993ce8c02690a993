"""The tasks that a run has beside its function: all end with it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio.abc


class Helpers:
    """Those of one execution.

    Attributes:
        tasks: where they run, once the execution has begun.
        needed: whether there were any.
    """

    def __init__(self) -> None:
        self.tasks: anyio.abc.TaskGroup | None = None
        self.needed = False

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task of the run's own."""
        assert self.tasks is not None
        self.needed = True
        self.tasks.start_soon(work)
