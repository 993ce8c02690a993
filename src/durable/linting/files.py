"""Checking files: workflows, their helpers, and the comments that say no."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from durable.errors import UsageError
from durable.linting.modules import Function, Module
from durable.linting.rules import Finding
from durable.linting.walking import look, parts

_NOQA = re.compile(r"#\s*noqa(?::\s*(?P<codes>[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*))?", re.IGNORECASE)


def python_files(paths: Iterable[Path]) -> list[Path]:
    """These files, and those in these folders but for hidden ones, in order.

    Raises:
        UsageError: there is nothing at a path.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("*.py"))
            found += [f for f in inside if not _is_hidden(f.relative_to(path))]
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"there is no file or folder {path}")
    return found


def check_file(path: Path, workflow: str | None = None) -> list[Finding]:
    """What is found in one file, in the order of its lines.

    Args:
        workflow: look into that function alone, and into what it calls.

    Raises:
        UsageError: it is no Python source.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
    except (SyntaxError, ValueError) as e:  # also what is not UTF-8
        raise UsageError(f"{path} is no Python source: {e}") from e
    module, lines = Module.of(tree), text.splitlines()
    found = {
        Finding(
            str(path), place.lineno, place.col_offset + 1, rule.code, f"{what} {rule.what}",
            rule.instead, function.name,
        )
        for function in _checked(module, workflow)
        for place, rule, what in look(function, module)
        if not _is_silenced(lines[place.lineno - 1], rule.code)
    }  # fmt: skip
    return sorted(found, key=lambda f: (f.line, f.column, f.code, f.function))


def _checked(module: Module, name: str | None) -> Iterator[Function]:
    """Workflows, then the plain functions of the module that they call."""
    workflows = [w for w in module.workflows if name in {None, w.name}]
    yield from workflows
    called = {
        node.func.id
        for workflow in workflows
        for node in parts(workflow, module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    yield from (function for name, function in module.plain.items() if name in called)


def _is_silenced(line: str, code: str) -> bool:
    comment = _NOQA.search(line)
    if comment is None:
        return False
    codes = comment["codes"]
    return codes is None or code in re.split(r"[,\s]+", codes.upper())


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)
