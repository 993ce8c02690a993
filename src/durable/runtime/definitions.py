"""What a decorated function is to the runtime: names, signature, options. No behaviour.

The runtime receives workflows as a mapping of these; it never imports the decorators.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from durable.protocol.retries import Retry


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A function as decorated.

    Attributes:
        name: its `__qualname__`, or the name given.
        hints: resolved annotations by parameter name, and `return`.
        is_async: an `async def`; else it runs in a thread.
    """

    name: str
    fn: Callable[..., Any]
    signature: inspect.Signature
    hints: Mapping[str, object]
    is_async: bool

    @property
    def returns(self) -> object:
        """The return annotation; None means unannotated."""
        return self.hints.get("return")


@dataclass(frozen=True, kw_only=True)
class StepDefinition(Definition):
    """A step and its options."""

    retry: Retry = field(default_factory=Retry)
    check_args: bool = True


@dataclass(frozen=True, kw_only=True)
class WorkflowDefinition(Definition):
    """A workflow and its options."""

    queue: str = "default"


Workflows = Mapping[str, WorkflowDefinition]
