"""All tests run in one process, where a durable name means one function."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
APART = {"typing", "recorder.py", "workflows.py"}  # only ever loaded by processes of their own


def durable_names(file: Path) -> Iterator[tuple[str, str]]:
    """What a module decorates at its top level: `step` or `workflow`, and the recorded name."""
    for node in ast.parse(file.read_text()).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            kind = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if kind in {"step", "workflow"}:
                yield kind, _given_name(decorator) or node.name


def _given_name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        for keyword in decorator.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return ""


def test_no_two_modules_define_one_name() -> None:
    """Else whichever is imported second is refused, far from where it stands."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file in TESTS.rglob("*.py"):
        if not APART & {file.name, *file.relative_to(TESTS).parts}:
            for name in durable_names(file):
                found[name].add(str(file.relative_to(TESTS)))

    assert {name: files for name, files in found.items() if len(files) > 1} == {}
