"""Every step and workflow decorated in this process. A name means one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from durable.errors import InvalidDefinition
from durable.protocol.records import Start
from durable.runtime.definitions import Definition, StepDefinition, WorkflowDefinition

_registry: dict[tuple[type[Definition], str], Definition] = {}


def workflows() -> dict[str, WorkflowDefinition]:
    """Every workflow decorated in this process, by name."""
    # A copy: another thread may be importing a module that defines more.
    return {d.name: d for d in list(_registry.values()) if isinstance(d, WorkflowDefinition)}


def code_for(start: Start) -> WorkflowDefinition | None:
    """The code of this process for a run: of its own version, else that which is defined last."""
    known = workflows().get(start.workflow)
    return None if known is None else known.for_runs_of(start.workflow_version)


def steps() -> dict[str, StepDefinition]:
    """Every step decorated in this process, by name."""
    return {d.name: d for d in list(_registry.values()) if isinstance(d, StepDefinition)}


def register(definition: Definition) -> None:
    """Make it known in this process.

    Raises:
        InvalidDefinition: another step has its name. Of workflows see `beside_others`.
    """
    key = (type(definition), definition.name)
    other = _registry.get(key)
    if other is not None and not isinstance(definition, WorkflowDefinition):
        _check_same(other, definition)
    _registry[key] = definition


def beside_others(definition: WorkflowDefinition) -> WorkflowDefinition:
    """With the other versions of the workflow that are known.

    Raises:
        InvalidDefinition: another workflow has its name and version.
    """
    there = _registry.get((WorkflowDefinition, definition.name))
    if not isinstance(there, WorkflowDefinition):
        return definition
    known = (msgspec.structs.replace(there, others=()), *there.others)
    for other in known:
        if other.version == definition.version:
            _check_same(other, definition)
    others = tuple(
        other for other in known
        if other.version != definition.version and not _same_source(other.fn, definition.fn)
    )  # fmt: skip
    return msgspec.structs.replace(definition, others=others)


def _check_same(other: Definition, definition: Definition) -> None:
    if not _same_source(other.fn, definition.fn):
        kind = "workflows" if isinstance(definition, WorkflowDefinition) else "steps"
        raise InvalidDefinition(
            f"two {kind} are named {definition.name!r}: {_where(other.fn)} "
            f"and {_where(definition.fn)}",
            hint='give one of them another name: name="..."',
        )


def _same_source(a: Callable[..., Any], b: Callable[..., Any]) -> bool:
    """A module loaded twice defines the same function twice; so does a notebook cell."""
    one, two = a.__code__, b.__code__
    if two.co_filename.startswith("<"):
        return True
    return (one.co_filename, one.co_firstlineno) == (two.co_filename, two.co_firstlineno)


def _where(fn: Callable[..., Any]) -> str:
    return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"
