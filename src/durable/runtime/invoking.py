"""One attempt: the user's function called in its place, for no longer than its timeout."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio

from durable.errors import StepTimeout
from durable.protocol import values
from durable.runtime import processes
from durable.runtime.calls import StepCall
from durable.runtime.cancelling import Cancelling
from durable.runtime.definitions import StepDefinition
from durable.runtime.inside import Inside
from durable.runtime.ownership import Ownership
from durable.runtime.scopes import Current, here
from durable.runtime.stragglers import Stragglers
from durable.runtime.surroundings import Surroundings
from durable.runtime.threads import Unwinding
from durable.runtime.threadwatch import in_thread

T = TypeVar("T")

log = logging.getLogger("durable")


@dataclass(kw_only=True)
class Invoker:
    """Calls the functions of one execution's steps."""

    around: Surroundings
    ownership: Ownership
    cancelling: Cancelling
    stragglers: Stragglers

    async def invoke(
        self, call: StepCall[Any], attempt: int, inside: Inside
    ) -> tuple[bytes, object]:
        """What the function returned: encoded, and the decoded copy of it.

        Raises:
            StepTimeout: it took too long.
            Unwinding: the lease was lost before it began.
            Raised: it raised, in a child process.
            BaseException: whatever it raised.
        """
        current = Current(self.ownership, call.path, attempt, inside)
        try:
            if not call.definition.is_async:
                async with self._places(call.definition):  # waiting for a place is not its time
                    with inside.begins():
                        return await self._in_its_place(call, current, inside)
            elif inside.limited:
                with inside.begins():
                    return await self._in_its_place(call, current, inside)
            else:
                return await self._in_its_place(call, current, inside)
        except anyio.get_cancelled_exc_class():
            inside.flag.set()
            raise
        finally:
            inside.ends()
        inside.flag.set()
        raise self._timed_out(call, attempt, inside)

    def _places(self, definition: StepDefinition) -> anyio.CapacityLimiter:
        return self.around.processes if definition.process else self.around.steps

    async def _in_its_place(
        self, call: StepCall[Any], current: Current, inside: Inside
    ) -> tuple[bytes, object]:
        """Async in this task, sync in a thread or a child process; with `here` set."""
        definition = call.definition
        fn = self.around.body_of(definition)
        if definition.process and fn is definition.fn:
            raw = await processes.run(self.around, call, current)
            return bytes(raw), values.decode(raw, call.returns)
        token = here.set(current)
        try:
            if definition.is_async:
                value = await fn(*call.args, **call.kwargs)
            else:
                value = await self._in_thread(call, fn, inside)
        finally:
            here.reset(token)
        return values.encode_result(value, call.returns, name=call.name)

    async def _in_thread(
        self, call: StepCall[Any], fn: Callable[..., object], inside: Inside
    ) -> object:
        if call.definition.undo is not None:
            fn = self.stragglers.followed(call.path, fn)
        with self.cancelling.telling(call, inside.flag):
            return await in_thread(
                _apply_if, self.around.trusted, fn, call.args, call.kwargs,
                limiter=anyio.CapacityLimiter(1),  # it has its place among the threads already
            )  # fmt: skip

    def _timed_out(self, call: StepCall[Any], attempt: int, inside: Inside) -> StepTimeout:
        name, run = call.name, self.ownership.run_id
        went = f"did not end within {inside.timeout:g} s"
        if inside.silent:
            went = f"gave no heartbeat for {inside.silence:g} s"
        if not (call.definition.is_async or call.definition.process):
            log.warning(
                "step %r of run %r %s; its thread goes on until it returns, and is told so by "
                "`durable.current().cancelled`",
                name,
                run,
                went,
            )
        return StepTimeout(f"attempt {attempt} of step {name!r} {went}", run=run)


def _apply_if(
    trusted: Callable[[], bool],
    fn: Callable[..., T],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> T:
    """The last look at the lease before a sync body.

    Between the event loop's look and the thread's start the whole process may have been stopped
    for longer than the lease lasts.
    """
    if not trusted():
        raise Unwinding("the lease was lost before the body began")
    return fn(*args, **kwargs)
