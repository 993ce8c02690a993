"""What others have left for a run that is held: looked at whenever somebody touches the run.

The fact is written first, then the run is touched. So a look that begins after a touch sees what
the touch is about, and no touch is answered by a look that began before it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from durable.errors import StoreError
from durable.runtime.closing import Stopped
from durable.runtime.gate import Gate

Look = Callable[[], Awaitable[None]]


class Looking:
    """The looks of one execution: at a cancellation, events, children.

    Args:
        looked: called when every touch so far is answered, or none will be.
        spawn: starts a task of the run's own.
    """

    def __init__(
        self,
        gate: Gate,
        looked: Callable[[], None],
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
    ) -> None:
        self._gate = gate
        self._tell = looked
        self._spawn = spawn
        self._looks: list[Look] = []
        self._touches = self._answered = 0
        self._begun = self._busy = False

    def at(self, look: Look) -> None:
        """Have this done at every look."""
        self._looks.append(look)

    def begin(self) -> None:
        """The run begins: from now on touches are answered, also those that came before."""
        self._begun = True
        self._answer()

    def end(self) -> None:
        """The run is over: whoever was to look may know it."""
        self._looks.clear()

    def touched(self) -> None:
        """Somebody woke the run: look at what may be new, once more."""
        self._touches += 1
        self._answer()

    @property
    def up_to_date(self) -> bool:
        """Whether every touch has been answered by a look that began after it."""
        return self._answered == self._touches

    def _answer(self) -> None:
        if self._begun and not (self.up_to_date or self._busy or self._gate.ended.is_set()):
            self._busy = True
            self._spawn(self._look)

    async def _look(self) -> None:
        try:
            while not self.up_to_date and self._gate.closing is None:
                seen = self._touches
                for look in self._looks:
                    await look()
                self._answered = seen
        except StoreError as e:
            self._gate.close(Stopped("store", error=e))
        finally:
            self._busy = False
            self._tell()
