"""Sync bodies that go on although nobody waits for them: a thread can be told, not stopped.

What such a body does must not be undone while it still does it. So the threads of steps with an
undo action are followed to their real end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import anyio

from durable.runtime.loops import Loop

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("durable")


class _Body:
    """One body; its fields are read in the event loop."""

    def __init__(self) -> None:
        self.begun = False  # set in its thread: one that is cancelled before never begins
        self.ended = anyio.Event()


class Stragglers:
    """The bodies in threads of one execution, by path."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._bodies: dict[str, list[_Body]] = {}

    def followed(self, path: str, fn: Callable[P, T]) -> Callable[P, T]:
        """The same function, whose end will be known; called in the event loop."""
        body = _Body()
        self._bodies.setdefault(path, []).append(body)

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            body.begun = True
            try:
                return fn(*args, **kwargs)
            finally:
                self._loop.soon(body.ended.set)

        return call

    async def end(self, run: str, path: str, seconds: float) -> None:
        """Wait until none of that call is at work any more, but no longer than that."""
        with anyio.move_on_after(seconds) as waiting:
            for body in self._bodies.get(path, ()):
                if body.begun:
                    await body.ended.wait()
        if waiting.cancelled_caught:
            log.warning(
                "call %r of run %r is undone while its thread still works: it has not looked at "
                "`durable.current().cancelled` for %g s",
                path,
                run,
                seconds,
            )
