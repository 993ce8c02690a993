"""Warnings in tests of what the source of a workflow says: clocks, chance, and order.

Python tells nobody when code asks for the time, so what `runtime.watching` cannot see is read from
the source, by the rules of `durable lint`, when a test first starts the workflow.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from durable.errors import NotRepeatable, UsageError
from durable.linting import check_file
from durable.runtime.definitions import WorkflowDefinition

# What is not seen while it runs; of threads Python tells since 3.12.
_CODES = {"DUR001", "DUR002", "DUR003", "DUR008", "DUR009"}
if sys.version_info < (3, 12):
    _CODES.add("DUR006")

_REGISTRY = "__warningregistry__"  # what a module has warned of before

_read: set[tuple[str, str]] = set()


def warn_of(definition: WorkflowDefinition) -> None:
    """Once for each workflow of this process."""
    file, name = definition.fn.__code__.co_filename, definition.fn.__name__
    if (file, name) in _read:
        return
    _read.add((file, name))
    module = sys.modules.get(definition.fn.__module__)
    try:
        found = check_file(Path(file), workflow=name)
    except (UsageError, OSError):  # typed into a shell, for example
        return
    for finding in found:
        if finding.code in _CODES:
            warnings.warn_explicit(
                f"{finding.code}: {finding.message}; use {finding.instead}",
                NotRepeatable,
                filename=file,
                lineno=finding.line,
                module=definition.fn.__module__,
                registry=None if module is None else vars(module).setdefault(_REGISTRY, {}),
            )
