"""Users' modules, loaded by name or from their files."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def execute(name: str, path: Path) -> ModuleType | None:
    """The file as a module of that name, executed now; None if it is no Python file."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def find(name: str, file: str) -> ModuleType:
    """The module that another process of this program knows by that name, from that file.

    Raises:
        ImportError: it cannot be found, or is not there any more.
    """
    there = sys.modules.get(name)
    if there is None and name != "__main__":
        try:
            there = importlib.import_module(name)
        except ModuleNotFoundError as e:
            if e.name != name.partition(".")[0] and e.name != name:
                raise  # it was found, and imports what is not there
    if there is not None and (name == "__main__" or getattr(there, "__file__", None) == file):
        return there
    loaded = execute(name, Path(file)) if file else None
    if loaded is None:
        raise ImportError(f"module {name!r} cannot be loaded from {file!r}")
    return loaded
