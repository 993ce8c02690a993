"""`timeout`: a block of code under a durable deadline.

The block has a scope of its own, in the strand that enters it. Beside it a task of the run's own
waits for the deadline, as a call whose outcome is a take: once it is claimed the block is over,
also if its code ends meanwhile, and on replay it is over at the same place. A block that ends
before leaves no trace but the claim of the deadline.
"""

from __future__ import annotations

import anyio

from durable.errors import RunCancelled, WaitTimeout
from durable.runtime.scopes import Scope, here
from durable.runtime.threads import Unwinding
from durable.runtime.turns import strand
from durable.runtime.waits import EventWait


class Block:
    """One block, from the call of `timeout` to its end.

    Args:
        scope: where it is made; its place is reserved now.
        seconds: from the moment it is entered.

    Attributes:
        fired: what to raise, once the deadline has passed.
        scope: of the calls inside.
    """

    def __init__(self, scope: Scope, seconds: float) -> None:
        self.fired: WaitTimeout | None = None
        self._outer = scope
        self._call = EventWait(scope, None, None, seconds)
        self.scope = scope.within(f"{self._call.path}/")
        self._guard = scope.within(self.scope.prefix)  # of the wait; closed when the block ends
        self._done: anyio.Event  # made in the event loop: a block may be made in a thread
        self._cancel: anyio.CancelScope | None = None  # around the code, unless it is in a thread

    # -- in the event loop ------------------------------------------------------------------------

    async def begin(self) -> None:
        """The deadline counts from now on."""
        self._done = anyio.Event()
        self._outer.execution.spawn(self._keep_time)

    async def end(self) -> None:
        """The code of the block has ended, one way or the other: is the deadline still open?"""
        execution = self._outer.execution
        if self.fired is None and not self._is_decided():
            self._guard.decided = True
            execution.inbox.withdraw(self._call.wish)
            execution.decided()
        await self._done.wait()
        if self.fired is not None:
            # Tasks of the user's own in the closed block see the cancellation first.
            await execution.turnstile.settled().wait()

    def _is_decided(self) -> bool:
        """Whether the deadline has passed for the record, though not for the code yet."""
        wish = self._call.wish
        recorded = self._outer.execution.recorded(self._call.path)
        if recorded is not None:
            return recorded.outcome == "error"
        return wish is not None and wish.begun

    async def _keep_time(self) -> None:
        here.set(self._guard)
        try:
            await self._call
        except WaitTimeout as e:
            self.fired = e
            self.scope.decided = True
            self._outer.execution.forget(self.scope.prefix, ())
            self._outer.execution.decided()
            if self._cancel is not None:
                self._cancel.cancel()
        except RunCancelled:
            pass  # the calls of the block raise it themselves
        except anyio.get_cancelled_exc_class():
            if not self._guard.decided:
                raise
        finally:
            self._done.set()

    # -- in the strand of the block ---------------------------------------------------------------

    async def __aenter__(self) -> None:
        self._own()
        await self.begin()
        self._cancel = anyio.CancelScope().__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self._disown()
        if self._outer.execution.closing is None:
            with anyio.CancelScope(shield=True):
                await self.end()
        assert self._cancel is not None
        caught = bool(self._cancel.__exit__(type(error) if error else None, error, None))
        self.judge(None if caught else error)
        return caught

    # -- in a thread ------------------------------------------------------------------------------

    def __enter__(self) -> None:
        self._outer.execution.from_thread(self._outer, self.begin)
        self._own()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self._disown()
        if self._outer.execution.closing is not None:
            return False
        self._outer.execution.from_thread(self._outer, self.end)
        # A thread cannot be cancelled: its calls in the closed block raise `Unwinding`.
        caught = self.fired is not None and isinstance(error, Unwinding)
        self.judge(None if caught else error)
        return caught

    # -- in both ----------------------------------------------------------------------------------

    def _own(self) -> None:
        self.scope.owner = strand()
        self._token = here.set(self.scope)

    def _disown(self) -> None:
        here.reset(self._token)

    def judge(self, error: BaseException | None) -> None:
        """Raise what the block comes to, unless its own error goes before.

        Raises:
            WaitTimeout: the deadline has passed.
            UnfinishedCalls: it was left while calls made in it had not finished.
        """
        if error is not None:
            return
        if self.fired is not None:
            raise self.fired
        self.scope.check_finished()
