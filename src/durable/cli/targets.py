"""TARGET: a file, `file:name`, a module or `module:name`, and the workflows it means."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from durable.configuration import settings
from durable.decorators import WorkflowFunction, workflows
from durable.errors import DurableError, UnknownWorkflow, UsageError
from durable.runtime import modules
from durable.runtime.definitions import WorkflowDefinition

Workflow = WorkflowFunction[Any, Any]

_FORMS = "write a file (shop.py), file:name, a module (shop.orders) or module:name"


def load_one(target: str) -> Workflow:
    """The one workflow that the target names.

    Raises:
        UsageError: it cannot be loaded, or has several workflows and names none.
        UnknownWorkflow: there is no such workflow.
    """
    module, name = _load(target)
    found = _workflows_of(module)
    if name:
        return _named(module, name, found)
    own = {n: w for n, w in found.items() if w.__module__ == module.__name__} or found
    if not own:
        raise UnknownWorkflow(f"{target} defines no workflow", hint="decorate one with @workflow")
    if len(own) > 1:
        raise UsageError(
            f"{target} has several workflows: {', '.join(sorted(own))}",
            hint=f"name one: {target}:{min(own)}",
        )
    return next(iter(own.values()))


def load_all(targets: Iterable[str], folder: Path | None = None) -> dict[str, WorkflowDefinition]:
    """What a worker of these targets serves, by name.

    Args:
        targets: each with a name means that workflow, without one all that it registers.
        folder: that relative files are meant from; None: the working folder.

    Raises:
        UsageError: a target cannot be loaded.
        UnknownWorkflow: there is no such workflow.
    """
    served: dict[str, WorkflowDefinition] = {}
    for target in targets:
        before = workflows()
        module, name = _load(target, folder)
        found = _workflows_of(module)
        if name:
            definitions = [_named(module, name, found).definition]
        else:
            known = workflows()
            definitions = [known[name] for name in found]
            definitions += [d for d in known.values() if before.get(d.name) is not d]
        if not definitions:
            raise UnknownWorkflow(f"{target} has no workflow", hint="decorate one with @workflow")
        served |= {d.name: d for d in definitions}
    return served


def served(targets: Sequence[str], store: str | None) -> dict[str, WorkflowDefinition]:
    """The workflows of these targets; without any, of `targets` of [tool.durable]."""
    if targets:
        return load_all(targets)
    found = settings(store, os.environ, Path.cwd())
    return load_all(found.targets, found.folder)


def _named(module: ModuleType, name: str, found: dict[str, Workflow]) -> Workflow:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    if isinstance(value, WorkflowFunction):
        return value
    if name in found:
        return found[name]
    known = ", ".join(sorted(found)) or "none"
    what = "is no workflow" if value is not None else "does not exist"
    raise UnknownWorkflow(
        f"{name!r} in {module.__name__!r} {what}", hint=f"workflows there: {known}"
    )


def _workflows_of(module: ModuleType) -> dict[str, Workflow]:
    return {w.name: w for w in vars(module).values() if isinstance(w, WorkflowFunction)}


def _load(target: str, folder: Path | None = None) -> tuple[ModuleType, str]:
    place, _, name = target.partition(":")
    if not place:
        raise UsageError(f"the target {target!r} is empty", hint=_FORMS)
    is_file = place.endswith(".py") or os.sep in place
    try:
        if is_file:
            return _load_file(((folder or Path.cwd()) / place).resolve(), place), name
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(place), name
    except DurableError:
        raise
    except ModuleNotFoundError as e:
        if e.name is not None and (place == e.name or place.startswith(f"{e.name}.")):
            raise UsageError(f"there is no module {place!r}", hint=_FORMS) from e
        raise _unloadable(place, e) from e
    except Exception as e:  # whatever the user's module raises
        raise _unloadable(place, e) from e


def _load_file(path: Path, shown: str) -> ModuleType:
    """The file as a module named after it, as `import` from its folder would name it.

    The name is part of recorded errors' types, so it must be the same wherever the file is.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {shown}", hint=_FORMS)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = path.stem
    there = sys.modules.get(name)
    if there is not None:
        if there.__file__ is not None and Path(there.__file__).resolve() == path:
            return there
        name = f"durable_target_{name}"  # it would stand in for another module of that name
    module = modules.execute(name, path)
    if module is None:
        raise UsageError(f"{shown} is no Python file", hint=_FORMS)
    return module


def _unloadable(place: str, error: Exception) -> UsageError:
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return UsageError(f"{place} cannot be loaded: {type(error).__name__}: {error}{at}")
