"""What a draining run waits for: bodies that run and outcomes that are being written."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from durable.runtime.closing import Closing, Stopped


class InFlight:
    """The calls of one execution whose bodies or writes are under way.

    Args:
        close: closes the run.

    Attributes:
        paths: the paths of these calls.
        draining: no further body starts.
    """

    def __init__(self, close: Callable[[Closing], None]) -> None:
        self.paths: set[str] = set()
        self.draining = False
        self._close = close

    def begins(self, path: str) -> None:
        """From now on a draining run waits for the call at `path`."""
        self.paths.add(path)

    def ends(self, path: str) -> None:
        """Its outcome is recorded, or there will be none from this owner. Twice is as once."""
        self.paths.discard(path)
        if self.draining:
            self._close_if_drained()

    def drain(self) -> None:
        """Start no further body; close as soon as none is in flight."""
        self.draining = True
        self._close_if_drained()

    def _close_if_drained(self) -> None:
        if not self.paths:
            self._close(Stopped("drain"))

    async def wait_for_the_end(self) -> None:
        """What would start a body in a draining run: the bodies in flight end, the run closes."""
        await anyio.sleep_forever()
