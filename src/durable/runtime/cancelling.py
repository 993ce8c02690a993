"""The cancellation of a run: asked for from outside, it arrives as outcomes of its calls.

It is durable, so it must come to the same on replay. Therefore nothing of it happens to the
workflow function but through its calls: each open call is claimed as `cancelled`, in its turn
like any other outcome, and only then raises `RunCancelled`. A call made later is claimed so
without ever running, unless it belongs to clean-up (see `cleanup`).

A body that runs is cancelled. One in a thread cannot be: it is told by `current().cancelled` and
given some time. A body that ends by itself meanwhile has an outcome, which counts.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import anyio
import msgspec

from durable.errors import RunCancelled
from durable.protocol import failures
from durable.protocol.failures import Failure
from durable.protocol.records import Cancel
from durable.runtime.calls import Call
from durable.runtime.facts import CorruptFact, read_cancel
from durable.runtime.flagging import Flag
from durable.runtime.gate import Wait
from durable.runtime.ownership import Ownership
from durable.runtime.turns import strand
from durable.store import Store

log = logging.getLogger("durable")

THREAD_GRACE = 10.0  # seconds for a body in a thread that was told to stop
CLAIMS_MAX = 100  # calls of one task that were cancelled without running: it swallows that


def message(run_id: str, asked: Cancel | None) -> str:
    """What is said of a cancelled run."""
    reason = f": {asked.reason}" if asked is not None and asked.reason else ""
    return f"run {run_id!r} was cancelled{reason}"


class OpenCall(msgspec.Struct):
    """A call whose attempts or whose durable wait a cancellation ends.

    Attributes:
        thread: the flag of the body while it runs in a thread.
    """

    call: Call[Any]
    wait: Wait
    thread: Flag | None = None


class Cancelling:
    """The cancellation of one execution's run.

    Args:
        asked: what somebody asked for before this execution began.
        on_asked: called when somebody asks for it later.

    Attributes:
        asked: what somebody has asked for.
        open: the calls that a cancellation reaches in the middle, by path.
    """

    def __init__(
        self,
        ownership: Ownership,
        store: Store,
        asked: Cancel | None,
        on_asked: Callable[[], None],
    ) -> None:
        self.asked = asked
        self._expired = False
        self._run_id = ownership.run_id
        self._instance = ownership.instance
        self._store = store
        self.open: dict[str, OpenCall] = {}
        self._on_asked = on_asked

    @cached_property
    def _claimed(self) -> Counter[int]:
        """How many calls never ran, by strand."""
        return Counter()

    @cached_property
    def stubborn(self) -> anyio.Event:
        """Set when code swallows it over and over."""
        return anyio.Event()

    def ask(self, request: Cancel) -> None:
        """Somebody asked for it: from now on it reaches the calls."""
        if self.asked is None:
            self.asked = request
            self._on_asked()
            self._interrupt_all()

    async def look(self) -> None:
        """See whether somebody has asked for it."""
        if self.asked is not None:
            return
        try:
            request = await read_cancel(self._store, self._run_id, self._instance)
        except CorruptFact as e:
            log.warning("run %r cannot be cancelled: %s", self._run_id, e)
        else:
            if request is not None:
                self.ask(request)

    def release(self) -> None:
        """The run is closed: nobody needs to be told any more."""
        self._on_asked = _ignore

    def expire(self) -> None:
        """The time for clean-up is over: its calls are cancelled too, but for undo actions."""
        self._expired = True
        self._interrupt_all()

    def covers(self, call: Call[Any]) -> bool:
        """Whether the call is to come to nothing but `cancelled`."""
        if self.asked is None or not call.cancellable:
            return False
        return self._expired or not call.cleanup

    def cleans_up(self, call: Call[Any]) -> bool:
        """Whether the call is part of the clean-up of a cancelled run."""
        return call.cleanup and self.asked is not None

    def claims(self) -> None:
        """A call of this strand is claimed as cancelled without having run."""
        self._claimed[strand()] += 1
        if self._claimed[strand()] > CLAIMS_MAX:
            self.stubborn.set()

    def error(self) -> RunCancelled:
        """What a call raises whose outcome is `cancelled`."""
        return RunCancelled(message(self._run_id, self.asked))

    def failure(self) -> Failure:
        """The same as data, for the outcome of the run."""
        return failures.from_exception(self.error())

    # -- reaching bodies --------------------------------------------------------------------------

    @contextlib.contextmanager
    def telling(self, call: Call[Any], flag: Flag) -> Iterator[None]:
        """Around a body in a thread: a cancellation tells it, and ends the wait later."""
        open_call = self.open[call.path]
        open_call.thread = flag
        self._interrupt(open_call)
        try:
            yield
        finally:
            open_call.thread = None

    def _interrupt_all(self) -> None:
        for open_call in list(self.open.values()):
            self._interrupt(open_call)

    def _interrupt(self, open_call: OpenCall) -> None:
        if not self.covers(open_call.call):
            return
        if open_call.thread is None:
            open_call.wait.end()
        else:
            open_call.thread.set()
            open_call.wait.end_in(THREAD_GRACE)


def _ignore() -> None:
    """Nobody listens."""
