"""Undo actions: what a run that does not complete takes back, step by step.

A step with an undo action is registered before its body first begins, with its arguments. Should
the run fail or be cancelled, the actions of all registered steps run, the last registered first,
each recorded as a step of its own at `undo/<path>`. A step whose body began and whose outcome
nobody knows is undone too: it may have done its work.

All that it takes is in the record. The workflow function is not needed for it, so what was done
can be undone even if its code cannot go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from durable.protocol import values
from durable.protocol.records import Step, Undo
from durable.runtime.calls import StepCall
from durable.runtime.definitions import StepDefinition, undoable
from durable.runtime.recording import Recorder
from durable.runtime.scopes import Scope
from durable.runtime.stragglers import Stragglers
from durable.runtime.turns import is_cancellation

if TYPE_CHECKING:
    from durable.runtime.execution import Execution

FOLDER = "undo/"  # of the paths of undo actions; scopes have an ordinal, so none is called so


@dataclass(kw_only=True)
class Undoing:
    """The undo actions of one execution.

    Attributes:
        recorded: outcomes that earlier owners recorded, by path.
        limit: seconds that an attempt may take unless the action says otherwise.
        stragglers: bodies that may still be at work.
        registered: what is to be undone unless the run completes, by path.
    """

    recorded: Mapping[str, Step]
    recorder: Recorder
    limit: float
    stragglers: Stragglers
    registered: dict[str, Undo] = field(default_factory=dict)
    _definitions: dict[str, StepDefinition] = field(default_factory=dict)
    _outcomes: dict[str, Step] = field(default_factory=dict)
    _issued: int = 0

    @property
    def owes(self) -> bool:
        """Whether there is anything to undo."""
        return bool(self.registered)

    async def register(self, call: StepCall[Any], branch: Scope) -> None:
        """Asked before a body of this call begins; nothing interrupts the registration."""
        assert call.stored is not None
        self._definitions[call.name] = call.definition
        if call.path not in self.registered:
            self._issued += 1
            undo = self.recorder.undo(call, msgspec.Raw(call.stored), self._issued)
            # Known before it is written: a decision that closes the branch may leave it half-way.
            self.registered[call.path] = undo
            await self.recorder.write_undo(undo, branch)

    def came_to(self, step: Step) -> None:
        """The outcome of a call, registered or not."""
        if step.path in self.registered:
            self._outcomes[step.path] = step

    async def undo_all(self, execution: Execution) -> list[str]:
        """Undo what is registered, the last first; what could not be undone, for people.

        One that fails does not keep the others from being undone.
        """
        scope = Scope(execution, FOLDER)
        failed: list[str] = []
        with scope.entered():
            for undo in sorted(self.registered.values(), key=_order, reverse=True):
                try:
                    await self._undo(scope, undo)
                except BaseException as e:
                    if is_cancellation(e) or isinstance(e, KeyboardInterrupt):
                        raise
                    failed.append(f"{undo.path!r} was not undone: {type(e).__name__}: {e}")
        return failed

    async def _undo(self, scope: Scope, undo: Undo) -> None:
        call = self._call(scope, undo)
        if call.path not in self.recorded:
            seconds = call.definition.timeout or self.limit
            await self.stragglers.end(scope.execution.run_id, undo.path, seconds)
        await call

    def _call(self, scope: Scope, undo: Undo) -> UndoCall:
        definition = self._definitions.get(undo.name) or undoable.get(undo.name)
        if definition is None or definition.undo is None:
            raise LookupError(f"no step {undo.name!r} with an undo action is defined here")
        action = definition.undo
        args, kwargs = values.decode_call(
            undo.input, definition.signature, definition.hints, name=definition.name
        )
        if takes_result(action, definition):
            kwargs["result"] = self._result(undo.path, definition)
        timeout = self.limit if action.timeout is None else action.timeout
        action = msgspec.structs.replace(
            action, timeout=timeout, check_args=False, undo=None, durability="each"
        )
        return UndoCall(scope, action, args, kwargs, FOLDER + undo.path)

    def _result(self, path: str, definition: StepDefinition) -> object:
        """What the step returned; None if it did not, or nobody knows."""
        step = self._outcomes.get(path) or self.recorded.get(path)
        if step is None or isinstance(step.value, msgspec.UnsetType):
            return None
        return values.decode(step.value, definition.returns)


class UndoCall(StepCall[None]):
    """A call of an undo action; nothing but the end of its owner interrupts it."""

    __slots__ = ()

    def __init__(
        self,
        scope: Scope,
        action: StepDefinition,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        path: str,
    ) -> None:
        super().__init__(scope, action, args, kwargs, None, kind="undo", path=path)
        self.cancellable = False


def takes_result(action: StepDefinition, definition: StepDefinition) -> bool:
    """Whether the action is told what the step returned, as `result=`."""
    return "result" in action.signature.parameters and (
        "result" not in definition.signature.parameters
    )


def by_path(undos: Iterable[Undo]) -> dict[str, Undo]:
    """The registrations that earlier owners left."""
    return {undo.path: undo for undo in undos}


def _order(undo: Undo) -> tuple[int, int, str]:
    return (undo.epoch, undo.n, undo.path)
