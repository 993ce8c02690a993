"""A durable call: made at a fixed place of the call tree, awaited wherever the user likes."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

import anyio

from durable.protocol import digests, failures
from durable.protocol.records import Step
from durable.runtime.definitions import StepDefinition
from durable.runtime.scopes import Scope, here
from durable.runtime.turns import cancellation

R = TypeVar("R")


class Call(Coroutine[Any, Any, R], Generic[R]):
    """A step call with its path reserved. Awaited twice, it gives one value.

    It is a `collections.abc.Coroutine`, so `asyncio.create_task`, `asyncio.gather`, `wait_for`
    and trio's nurseries take it; its body runs in the task that first awaits it.
    """

    __slots__ = (
        "args", "begun", "definition", "digest", "ended", "joined", "key", "kwargs",
        "outcome", "path", "scope", "_coroutine", "_value",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        definition: StepDefinition,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        key: str | None,
    ) -> None:
        self.scope = scope
        self.definition = definition
        self.args = args
        self.kwargs = kwargs
        self.digest = ""
        if definition.check_args:
            self.digest = digests.of_call(
                definition.name, definition.signature, args, kwargs, definition.hints
            )
        self.path = scope.reserve(definition.name, key)
        scope.execution.moved()
        self.outcome: Step | None = None
        self.begun = False
        self.ended = False
        self.joined: anyio.Event | None = None  # made by whoever awaits it while it runs
        self._coroutine: Coroutine[Any, Any, R] | None = None
        self._value: object = _UNDECODED

    # -- a coroutine ------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, Any, R]:
        return self._drive().__await__()

    def send(self, value: Any) -> Any:
        if self._coroutine is None:
            self._coroutine = self._drive()
        return self._coroutine.send(value)

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,  # noqa: ARG002  # the signature of Coroutine
        tb: TracebackType | None = None,  # noqa: ARG002  # as above
    ) -> Any:
        if self._coroutine is None:
            self._coroutine = self._drive()
            self._never_begins()
        error = typ if isinstance(typ, BaseException) else typ()
        return self._coroutine.throw(error)

    def close(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()
        else:
            self._never_begins()

    def __repr__(self) -> str:
        return f"<durable call {self.path} of run {self.scope.execution.run_id!r}>"

    def _never_begins(self) -> None:
        """Its task was cancelled before its first turn: nothing happened, nothing is recorded."""
        if not self.begun:
            self.begun = True
            self._ends()

    def _ends(self) -> None:
        self.ended = True
        if self.joined is not None:
            self.joined.set()
        self.scope.finished(self.path)

    # -- its course -------------------------------------------------------------------------------

    async def _drive(self) -> R:
        execution = self.scope.execution
        if not self.begun:
            self.begun = True
            place = here.get()
            branch = place if isinstance(place, Scope) else self.scope
            try:
                self.outcome, self._value = await execution.perform(self, branch)
            finally:
                self._ends()
                execution.moved()
        elif self.outcome is None:
            if not self.ended:
                self.joined = self.joined or anyio.Event()
                await self.joined.wait()
            if self.outcome is None:  # the task that ran it was cancelled
                raise await cancellation()
        assert self.outcome is not None
        if self.outcome.failure is not None:
            raise failures.rebuild(self.outcome.failure)
        return cast("R", self._value)


class _Undecoded:
    pass


_UNDECODED = _Undecoded()
