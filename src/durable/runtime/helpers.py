"""The tasks that a run has beside its function: all end with it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio.abc

from durable.runtime.closing import Closing, Stopped

Work = Callable[[], Coroutine[Any, Any, None]]


class Helpers:
    """Those of one execution.

    Args:
        close: closes the run.

    Attributes:
        tasks: where they run, once the execution has begun.
    """

    def __init__(self, close: Callable[[Closing], None]) -> None:
        self.tasks: anyio.abc.TaskGroup | None = None
        self._close = close
        self._needed = False

    def spawn(self, work: Work) -> None:
        """Start a task of the run's own."""
        assert self.tasks is not None
        self._needed = True
        self.tasks.start_soon(self._run, work)

    def end(self) -> None:
        """Nothing needs them any more."""
        if self.tasks is not None and self._needed:  # else there is nothing to cancel
            self.tasks.cancel_scope.cancel()

    async def _run(self, work: Work) -> None:
        try:
            await work()
        except Exception as e:
            # The function stands under a shield: of a fault of ours it would not hear.
            self._close(Stopped("broken", path=repr(e)))
            raise
