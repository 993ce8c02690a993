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
    """

    def __init__(self, close: Callable[[Closing], None]) -> None:
        self.paths: set[str] = set()
        self._draining = False
        self._close = close

    def begins(self, path: str) -> None:
        """From now on a draining run waits for the call at `path`."""
        self.paths.add(path)

    def ends(self, path: str) -> None:
        """Its outcome is recorded, or there will be none from this owner. Twice is as once."""
        self.paths.discard(path)
        self._close_if_drained()

    def drain(self) -> None:
        """Start no further body; close as soon as none is in flight."""
        self._draining = True
        self._close_if_drained()

    def _close_if_drained(self) -> None:
        if self._draining and not self.paths:
            self._close(Stopped("drain"))

    async def wait_if_draining(self) -> None:
        """Asked before a body starts: in a draining run none does."""
        if self._draining:
            await anyio.sleep_forever()  # until the bodies in flight end and the run closes
