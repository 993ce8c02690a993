"""Which lines of a workflow function may do something else the next time, or call a step."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

# What comes out differs each time. Code of steps may use it; between steps it may not be used.
_CHANGING = {"datetime", "os", "random", "secrets", "socket", "time", "urllib", "uuid"}
_CHANGING_BUILTINS = {"id", "input", "open"}


def unrepeatable(fn: Callable[..., Any]) -> list[str]:
    """Lines of the function that read a clock, chance, a file or the environment."""
    return [
        f"{_place(fn, call)}: {ast.unparse(call.func)}(...)"
        for call in _calls(fn)
        if _is_changing(fn, call.func)
    ]


def calls_of(fn: Callable[..., Any], step: str) -> list[str]:
    """Lines of the function that call the step of that name."""
    found = []
    for call in _calls(fn):
        callee = call.func
        if isinstance(callee, ast.Attribute) and callee.attr == "call":
            callee = callee.value
        target = _resolve(fn, callee)
        if getattr(target, "name", None) == step:
            found.append(f"{_place(fn, call)}: {ast.unparse(call.func)}(...)")
    return found


def _calls(fn: Callable[..., Any]) -> Iterator[ast.Call]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    except (OSError, TypeError, SyntaxError):  # a notebook, or a lambda in the midst of a line
        return
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    yield from sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def _place(fn: Callable[..., Any], call: ast.Call) -> str:
    code = fn.__code__  # decorators take functions only
    return f"{code.co_filename}:{code.co_firstlineno + call.lineno - 1}"


def _is_changing(fn: Callable[..., Any], callee: ast.expr) -> bool:
    root = callee
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name):
        return False
    if root.id in _CHANGING_BUILTINS and root.id not in fn.__globals__:
        return True
    found = _resolve(fn, root)
    module = found.__name__ if inspect.ismodule(found) else _module_of(found)
    return module.partition(".")[0] in _CHANGING


def _module_of(found: object) -> str:
    owner = getattr(found, "__self__", None)  # random.random is a method of a hidden object
    if owner is not None and not inspect.ismodule(owner):
        found = owner if isinstance(owner, type) else type(owner)
    return str(getattr(found, "__module__", None) or "")


def _resolve(fn: Callable[..., Any], expression: ast.expr) -> object:
    """What a dotted name stands for in the function's module; None if that cannot be told."""
    if isinstance(expression, ast.Name):
        closure = inspect.getclosurevars(fn)
        return closure.nonlocals.get(expression.id, fn.__globals__.get(expression.id))
    if isinstance(expression, ast.Attribute):
        return getattr(_resolve(fn, expression.value), expression.attr, None)
    if isinstance(expression, ast.Call):  # charge.options(...)(order)
        return _resolve(fn, _before_options(expression.func))
    return None


def _before_options(callee: ast.expr) -> ast.expr:
    is_options = isinstance(callee, ast.Attribute) and callee.attr == "options"
    return callee.value if is_options and isinstance(callee, ast.Attribute) else callee
