"""News for one task that waits for it: no event of the event loop until it does.

An event costs microseconds to make and three objects to keep. Most runs are over before anybody
waits for most of what could be waited for.
"""

from __future__ import annotations

import anyio


class News:
    """Whether something happened since the last look. In one event loop, for one waiting task."""

    __slots__ = ("_event", "_there")

    def __init__(self) -> None:
        self._there = False
        self._event: anyio.Event | None = None  # while somebody waits

    def tell(self) -> None:
        """There is something new."""
        self._there = True
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Returns once there is something that no earlier wait has returned for."""
        if not self._there:
            self._event = anyio.Event()
            try:
                await self._event.wait()
            finally:
                self._event = None
        self._there = False
