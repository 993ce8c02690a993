"""A durable call: made at a fixed place of the call tree, awaited wherever the user likes."""

from __future__ import annotations

import abc
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

import anyio

from durable.protocol import digests, failures, values
from durable.protocol.records import Step
from durable.runtime import cleanup
from durable.runtime.definitions import StepDefinition
from durable.runtime.scopes import Scope, here
from durable.runtime.turns import cancellation

R = TypeVar("R")


class Call(Coroutine[Any, Any, R], Generic[R]):
    """A call with its path reserved: a step, a wait, a child. Awaited twice, it gives one value.

    It is a `collections.abc.Coroutine`, so `asyncio.create_task`, `asyncio.gather`, `wait_for`
    and trio's nurseries take it; its body runs in the task that first awaits it.

    A kind of call is a subclass with `course`; what it has in common with the others (replay,
    drift, order, cancellation) is `Performer`'s.

    Attributes:
        kind: recorded, and compared on replay.
        name: as `kind`; the path is made of it.
        digest: of the arguments, as `kind`; empty: not compared.
        cleanup: whether it was made by code that handles a cancellation.
        cancellable: whether it comes to nothing if the run is cancelled.
        returns: the annotation by which a recorded value is decoded.
        grouped: whether its outcome is recorded together with others; see `grouping`.
    """

    __slots__ = (
        "begun", "cancellable", "cleanup", "digest", "ended", "grouped", "joined", "kind", "name",
        "outcome", "path", "returns", "scope", "_coroutine", "_value",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        kind: str,
        name: str,
        *,
        key: str | None = None,
        digest: str = "",
        returns: object = None,
        path: str | None = None,
    ) -> None:
        self.scope = scope
        self.kind = kind
        self.name = name
        self.digest = digest
        self.returns = returns
        self.path = path or scope.reserve(name, key, self)
        self.cleanup = cleanup.under_way()
        self.cancellable = True
        self.grouped = False
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

    @abc.abstractmethod
    def course(self, branch: Scope) -> Coroutine[Any, Any, tuple[Step, object]]:
        """Its outcome and the decoded value, in its turn; see `Performer.perform`."""

    async def _drive(self) -> R:
        execution = self.scope.execution
        if not self.begun:
            self.begun = True
            place = here.get()
            branch = place if isinstance(place, Scope) else self.scope
            execution.parking.call_begins()
            try:
                self.outcome, self._value = await self.course(branch)
                self.scope.heard(self.outcome.time)
            finally:
                if self.outcome is None:
                    execution.closed(self.path)
                self._ends()
                execution.moved()
                execution.parking.call_ends()
        elif self.outcome is None:
            if not self.ended:
                self.joined = self.joined or anyio.Event()
                await self.joined.wait()
            if self.outcome is None:  # the task that ran it was cancelled
                raise await cancellation()
        assert self.outcome is not None
        if self.outcome.outcome == "cancelled":
            raise execution.cancelling.error()
        if self.outcome.failure is not None:
            raise failures.rebuild(self.outcome.failure)
        return self.given(self._value)

    def given(self, value: object) -> R:
        """What user code gets for the decoded value."""
        return cast("R", value)


class StepCall(Call[R]):
    """A call of a step.

    Attributes:
        stored: the arguments for its undo action; None if it has none.
    """

    __slots__ = ("args", "definition", "kwargs", "stored")

    def __init__(
        self,
        scope: Scope,
        definition: StepDefinition,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        key: str | None,
        *,
        kind: str = "step",
        path: str | None = None,
    ) -> None:
        self.definition = definition
        self.args = args
        self.kwargs = kwargs
        digest = ""
        if definition.check_args:
            digest = digests.of_call(
                definition.name, definition.signature, args, kwargs, definition.hints
            )
        self.stored: bytes | None = None
        if definition.undo is not None:
            self.stored = values.encode_call(
                definition.signature, definition.hints, args, kwargs, name=definition.name
            )
        super().__init__(
            scope, kind, definition.name, key=key, digest=digest, returns=definition.returns,
            path=path,
        )  # fmt: skip
        self.grouped = definition.durability == "group"

    def course(self, branch: Scope) -> Coroutine[Any, Any, tuple[Step, object]]:
        return self.scope.execution.perform_step(self, branch)


class _Undecoded:
    pass


_UNDECODED = _Undecoded()
