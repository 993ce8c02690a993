"""The workflow function of one execution: run to its end, or cut short, and undone if need be."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import msgspec

from durable.protocol import failures, values
from durable.protocol.failures import Failure
from durable.runtime import cleanup
from durable.runtime.cancelling import Cancelling
from durable.runtime.closing import Finished
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.gate import Gate
from durable.runtime.scopes import Scope
from durable.runtime.turnstile import Turnstile
from durable.runtime.undoing import FOLDER, Undoing

log = logging.getLogger("durable")

CUT_GRACE = 10.0  # seconds in which a function that is cut short has to unwind


@dataclass(kw_only=True)
class Function:
    """See the module's docstring.

    Attributes:
        over: what the run comes to, whatever the function does: it was cut short, or is not even
            run.
    """

    definition: WorkflowDefinition
    root: Scope
    gate: Gate
    turnstile: Turnstile
    cancelling: Cancelling
    undoing: Undoing
    over: Finished | None = None
    _ended: bool = False

    async def outcome(self, call: Callable[[], Awaitable[object]]) -> Finished | None:
        """What the run comes to. If it does not complete, what it did is undone before.

        None: the run was closed meanwhile.

        Args:
            call: runs the function in the root scope.
        """
        ended = self.over
        if ended is None:
            with self.gate.function:
                ended = await self._run(call)
        self._ended = True
        ended = self.over or ended
        if ended is not None and ended.failure is not None and self.undoing.owes:
            await self._undo(ended.failure)
        return ended

    async def _undo(self, failure: Failure) -> None:
        if self.gate.closing is not None:
            return
        self._leave()
        self.gate.function = anyio.CancelScope(shield=True)  # no scope can be entered twice
        with self.gate.function:
            failed = await self.undoing.undo_all(self.root.execution)
            failure.notes = [*failure.notes, *failed]

    async def cut(self, ended: Finished) -> None:
        """End the function wherever it stands, so that its steps can be undone.

        Code that does not unwind is left behind, and nothing is undone: it may still be at it.
        """
        if self._ended or self.gate.closing is not None:
            return
        self.over = ended
        self._leave()
        self.gate.function.cancel()
        await anyio.sleep(CUT_GRACE)
        if not self._ended:
            if self.undoing.owes and ended.failure is not None:
                note = "nothing was undone: the workflow function does not unwind"
                ended.failure.notes = [*ended.failure.notes, note]
            self.gate.close(ended)

    def _leave(self) -> None:
        """Nothing that the function has begun goes on, and nothing waits for what it recorded."""
        self.root.decided = True
        self.gate.decided()
        remaining = self.turnstile.remaining()
        self.turnstile.forget([path for path in remaining if not path.startswith(FOLDER)])

    async def _run(self, call: Callable[[], Awaitable[object]]) -> Finished:
        definition = self.definition
        try:
            value = await call()
            raw, _ = values.encode_result(value, definition.returns, name=definition.name)
        except KeyboardInterrupt:
            raise  # the process was asked to end; no outcome is invented
        except (Exception, SystemExit) as e:  # noqa: BLE001  # `sys.exit` ends the run alone
            return Finished(failure=failures.from_exception(e))
        except BaseException as e:
            if self.gate.function.cancel_called:  # the run is closed, or cut short
                raise
            if self.cancelling.asked is not None and cleanup.holds_only_cancellations(e):
                return Finished(cancelled=True, failure=self.cancelling.failure())
            # A cancellation of its own making that escaped from the function.
            return Finished(failure=failures.from_exception(e))
        return Finished(value=msgspec.Raw(raw))
