"""What a client asks for, checked and encoded before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from durable.decorators import WorkflowFunction
from durable.errors import Conflict, UsageError
from durable.protocol import digests, values
from durable.protocol.records import Start
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.starting import random_id
from durable.system import System


class Request(msgspec.Struct, frozen=True):
    """A run as asked for."""

    run: str
    start: Start
    definition: WorkflowDefinition

    def at(self, now: float) -> Request:
        """The same, made at that time of the store's: its limits count from then."""
        held = self.start.debounce
        debounce = self.definition.debounced("" if held is None else held.key, now)
        deadline = self.definition.deadline(now, debounce)
        start = msgspec.structs.replace(
            self.start, created=now, debounce=debounce, deadline=deadline
        )
        return msgspec.structs.replace(self, start=start)


def build(
    workflow: WorkflowFunction[Any, Any],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    system: System,
    version: str,
) -> Request:
    """The request for a run of this workflow under its options; the id defaults to a random one.

    It has no time yet: what is wrong with it is told before the store is asked for anything, and
    what time it is only the store's first answer tells.

    Raises:
        UsageError: it is no workflow, a tag is no text, or its queue has no quiet time for its
            debounce key.
        InvalidArguments: the arguments do not fit, or cannot be stored.
    """
    if not isinstance(workflow, WorkflowFunction):
        raise UsageError(
            f"only workflows can be started, not {getattr(workflow, '__qualname__', workflow)!r}",
            hint="decorate the function with @workflow",
        )
    definition = workflow.definition
    encoded = values.encode_call(
        definition.signature, definition.hints, args, kwargs, name=definition.name
    )
    start = Start(
        workflow=definition.name, input=msgspec.Raw(encoded), instance=random_id(system),
        nonce=system.token(), queue=definition.queue, version=version,
        workflow_version=definition.version, pinned=definition.pinned,
        tags=dict(workflow.tags),
        lock=definition.lock(args, kwargs), priority=workflow.priority,
        limited=definition.is_limited, label=definition.label, dedup_key=workflow.dedup_key,
        debounce=definition.debounced(workflow.debounce_key, 0.0),
    )  # fmt: skip
    run = random_id(system) if workflow.run_id is None else workflow.run_id
    return Request(run, start, definition)


def check_same(request: Request, existing: Start) -> None:
    """Asking twice for the same is one run; asking for something else is an error.

    Raises:
        Conflict: the id belongs to another workflow or another input.
    """
    asked, run = request.start, request.run
    hint = "use another id, or ask for what was started under this one"
    if existing.workflow != asked.workflow:
        raise Conflict(
            f"run {run!r} belongs to workflow {existing.workflow!r}; it was now asked for with "
            f"workflow {asked.workflow!r}",
            hint=hint,
            run=run,
        )
    if not _same_input(existing.input, asked.input, request.definition):
        raise Conflict(
            f"run {run!r} of workflow {existing.workflow!r} was started with another input "
            "than it is now asked for with",
            hint=hint,
            run=run,
        )


def _same_input(a: msgspec.Raw, b: msgspec.Raw, definition: WorkflowDefinition) -> bool:
    """By meaning: `f(1)` and `f(x=1)` are the same call."""
    if bytes(a) == bytes(b):
        return True
    try:
        return _digest(a, definition) == _digest(b, definition)
    except values.Undecodable:  # the function has changed since
        return False


def _digest(encoded: msgspec.Raw, definition: WorkflowDefinition) -> str:
    signature, hints = definition.signature, definition.hints
    args, kwargs = values.decode_call(encoded, signature, hints, name=definition.name)
    return digests.of_call(definition.name, signature, args, kwargs, hints)
