"""From one acquisition of a lease to its end: two event loops that share some facts.

The owning loop is the worker's; the renewal runs in a loop of its own, or as a task of the same
one. Each side hands the other callbacks and never waits for it.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable

import anyio

from durable.protocol.leases import Terms
from durable.runtime.turns import waker
from durable.store import WRITERS_KEPT, Stored

BLOCKED_PERIODS = 3  # renewal periods for which the event loop may stand still unnoticed

Callback = Callable[[], object]

logger = logging.getLogger("durable")


class Tenure:
    """What the renewal knows, and how the two sides talk. Made in the owning event loop.

    Attributes:
        began: when the acquisition began, on the boot clock.
        generation: what stands in the store as last known; None: nothing of ours yet.
        writers: the nonces of its last writers, newest first.
        unsure: a create of ours was not answered at once, and may be applied later.
        deadline: until when it is trusted, on the boot clock; -inf until first acknowledged.
        error: why it could not be acquired.
        news: set, and replaced by a new one, when any of this changed.
        ended: the renewal has left.
    """

    def __init__(self, began: float) -> None:
        self.began = began
        self.generation: int | None = None
        self.writers: deque[str] = deque(maxlen=WRITERS_KEPT)
        self.unsure = False
        self.deadline = -math.inf
        self.error: Exception | None = None
        self.news = anyio.Event()
        self.ended = anyio.Event()
        self._wake_owner = waker()
        self._wake_renewal: Callable[[Callback], None] | None = None
        self._scope: anyio.CancelScope | None = None
        self._halted = False

    # -- for the renewal -------------------------------------------------------------------------

    def enter(self, scope: anyio.CancelScope) -> None:
        """The renewal runs in `scope` from now on."""
        self._scope, self._wake_renewal = scope, waker()
        if self._halted:  # `halt` sets before it looks, this looks after it has set
            scope.cancel()

    def stands(self, generation: int, nonce: str) -> None:
        """A write of ours is acknowledged."""
        self.generation = generation
        self.writers.appendleft(nonce)

    def found(self, current: Stored) -> None:
        """The store was read: this object of ours is there."""
        self.generation = current.generation
        self.writers = deque(current.meta.get("nonce", "").split(), maxlen=WRITERS_KEPT)

    def tell(self, callback: Callback) -> bool:
        """Run a callback in the owning event loop. False: that loop is closed."""
        return _run_in(self._wake_owner, callback)

    # -- for the owning event loop ---------------------------------------------------------------

    def halt(self) -> None:
        """Make the renewal leave; a write under way stays ambiguous."""
        self._halted = True
        if self._wake_renewal is not None and self._scope is not None:
            _run_in(self._wake_renewal, self._scope.cancel)

    def announce(self) -> None:
        """Wake whoever waits for news."""
        self.news.set()
        self.news = anyio.Event()

    def end(self) -> None:
        """The renewal has left."""
        self.ended.set()
        self.announce()


class LoopWatch:
    """Notices, from the renewal's side, that the owning event loop stands still.

    Args:
        tenure: whose owning loop is watched.
        worker: the worker id, for the warning.
        terms: three of their renewal periods may pass before it warns.
        describe: what is running in that loop; called from here.
    """

    def __init__(
        self, tenure: Tenure, worker: str, terms: Terms, describe: Callable[[], str]
    ) -> None:
        self._tenure = tenure
        self._worker = worker
        self._limit = BLOCKED_PERIODS * terms.period
        self._describe = describe
        self._asked = 0.0
        self._answered = True
        self._warned = False

    def look(self) -> bool:
        """Ask the loop for a sign of life, warn once if it owes one for too long.

        Returns:
            False: that loop is closed, nobody is left to hold the lease for.
        """
        now = anyio.current_time()  # not the boot clock: a suspended loop is not a blocked one
        if self._answered:
            self._answered = self._warned = False
            self._asked = now
        elif now - self._asked >= self._limit and not self._warned:
            self._warned = True
            logger.warning(
                "the event loop of worker %s has not run for %.1f s; in flight: %s. Its lease is "
                "renewed, but nothing else goes on. Make what blocks it a plain function, which "
                "runs in a thread, or await in it.",
                self._worker,
                now - self._asked,
                self._describe() or "nothing known",
            )
        return self._tenure.tell(self._answer)  # also while it owes one: it may have been closed

    def _answer(self) -> None:
        self._answered = True


def _run_in(wake: Callable[[Callback], None], callback: Callback) -> bool:
    try:
        wake(callback)
    except RuntimeError:  # how both asyncio and trio say that the loop is closed
        return False
    return True
