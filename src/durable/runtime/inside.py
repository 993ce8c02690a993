"""One attempt as its own code sees the run: it may tell how it goes, from a task or a thread."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

import anyio
import msgspec

from durable.runtime.flagging import Flag
from durable.runtime.latest import Latest
from durable.runtime.loops import Loop
from durable.runtime.publishing import Publishing
from durable.runtime.threads import Unwinding
from durable.store import Store

Limit = AbstractContextManager[object, bool]

_UNLIMITED = cast("Limit", contextlib.nullcontext())  # a scope has its price


class Inside(msgspec.Struct, kw_only=True):  # made for every attempt: no dataclass
    """What an attempt under way may ask of its run.

    Attributes:
        store: for what it asks of the store itself.
        new_beats: makes the object that heartbeats go to.
        beats: that object; None before the first.
        told: what an attempt before it last gave to `heartbeat`.
        details: the same, or what it gave itself since.
        limited: whether it has a timeout or a silence: only then has it a scope.
        timeout: seconds that it may take.
        silence: seconds that may pass without a heartbeat.
        flag: set when nobody waits for it any more.
        published: what it published, by name.
    """

    store: Store
    loop: Loop
    publishing: Publishing
    new_beats: Callable[[], Latest]
    beats: Latest | None = None
    told: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    limited: bool = False
    timeout: float = math.inf
    silence: float = math.inf
    flag: Flag = msgspec.field(default_factory=Flag)
    published: dict[str, msgspec.Raw] = {}  # a Struct copies it
    details: msgspec.Raw | msgspec.UnsetType
    _over: bool = False
    _end: float = math.inf
    _scope: anyio.CancelScope | None = None  # nothing limits it

    # -- around it, in the event loop -------------------------------------------------------------

    def begins(self) -> Limit:
        """Around it: cancels it when its time, which begins now, has run out."""
        if not self.limited:
            return _UNLIMITED
        self._end = self.loop.time() + self.timeout
        self._scope = anyio.CancelScope()
        self._alive()
        return self._scope

    @property
    def silent(self) -> bool:
        """Whether the time that ran out is that between two heartbeats."""
        return self._scope is not None and self._scope.deadline < self._end

    def ends(self) -> None:
        """It has ended: what it still says is not heard, and its beats are not needed any more."""
        self._over = True
        if self.beats is not None:
            self.beats.drop()

    # -- from its own code ------------------------------------------------------------------------

    def heartbeat(self, details: msgspec.Raw) -> None:
        """It is alive, and has come so far. Raises Unwinding in a thread left behind."""
        self._check_wanted()
        self.loop.soon(lambda: self._beat(details))

    def publish(self, name: str, value: msgspec.Raw) -> None:
        """See `publishing.publish`. Raises Unwinding in a thread left behind."""
        self._check_wanted()
        self.loop.soon(lambda: self._publish(name, value))

    def _check_wanted(self) -> None:
        if self._over:
            raise Unwinding("nobody waits for this attempt any more")

    def _beat(self, details: msgspec.Raw) -> None:
        if not self._over:
            self.details = details
            self.beats = self.beats or self.new_beats()
            self.beats.put(details)
            self._alive()

    def _publish(self, name: str, value: msgspec.Raw) -> None:
        if not self._over:
            self.published[name] = value
            self.publishing.put(name, value)

    def _alive(self) -> None:
        if self._scope is not None:
            self._scope.deadline = min(self._end, self.loop.time() + self.silence)
