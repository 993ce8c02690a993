"""Going through one function and telling what does not fit a workflow."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from durable.linting.modules import Function, Module
from durable.linting.rules import (
    FIRST,
    RULES,
    THREADS,
    TIMEOUT,
    UNAWAITED,
    UNORDERED,
    Rule,
    rule_for,
)

Found = tuple[ast.expr, Rule, str]  # where, what is wrong with it, what it is

_SETS = {"set", "frozenset"}
_SET_TYPES = _SETS | {
    f"{module}.{name}"
    for module in ("typing", "collections.abc")
    for name in ("Set", "FrozenSet", "AbstractSet", "MutableSet")
}
_OF_SETS = {"copy", "difference", "intersection", "symmetric_difference", "union"}
_KEEPS_ORDER = {"enumerate", "filter", "iter", "list", "map", "reversed", "tuple", "zip"}
_MAPS = {"durable.map", "durable.sync.map"}
_COMPREHENSIONS = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp


def parts(function: Function, module: Module) -> Iterator[ast.AST]:
    """All that is in the function, but for steps defined there."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if module.is_step(node):
            continue
        yield node
        todo += ast.iter_child_nodes(node)


def look(function: Function, module: Module) -> Iterator[Found]:
    """What is to be told of the function."""
    sets = _names_of_sets(function, module)
    for node in parts(function, module):
        if isinstance(node, ast.Call):
            yield from _call(node, module, sets)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if module.must_be_awaited(node.value):
                yield node.value, RULES[UNAWAITED], module.name_of(node.value)
        elif isinstance(node, ast.For | ast.AsyncFor):
            if _is_set(node.iter, module, sets) and _drives(node.body, module):
                yield node.iter, RULES[UNORDERED], "a set that drives durable calls"
        elif isinstance(node, _COMPREHENSIONS):
            first = node.generators[0].iter
            if _is_set(first, module, sets) and _drives([node], module):
                yield first, RULES[UNORDERED], "a set that drives durable calls"


def _call(call: ast.Call, module: Module, sets: set[str]) -> Iterator[Found]:
    name = module.name_of(call.func)
    if name in _MAPS and len(call.args) > 1 and _is_set(call.args[1], module, sets):
        yield call.args[1], RULES[UNORDERED], "a set that drives durable calls"
    rule = RULES[THREADS] if name.endswith(".run_in_executor") else rule_for(name)
    if rule is None or _continues(call, module):
        return
    if name == "random.Random" and call.args:  # seeded: the same each time
        return
    if rule.code == FIRST and name == "asyncio.wait" and not _waits_for_first(call, module):
        return
    if rule.code == TIMEOUT and name == "asyncio.timeout" and _never(call):
        return
    yield call, rule, name


def _continues(call: ast.Call, module: Module) -> bool:
    """Whether it is a method of what another call gave that is told of itself."""
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Call) and rule_for(module.name_of(node)) is not None


def _waits_for_first(call: ast.Call, module: Module) -> bool:
    given = [k.value for k in call.keywords if k.arg in {"return_when", "timeout"}]
    said = {module.name_of(value).rsplit(".", 1)[-1] for value in given}
    return bool(said - {"ALL_COMPLETED"})


def _never(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value is None


def _names_of_sets(function: Function, module: Module) -> set[str]:
    """Parameters and variables that are given a set, and nothing else."""
    given: dict[str, list[bool]] = {}
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        given[argument.arg] = [_is_set_type(argument.annotation, module)]
    for node in parts(function, module):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    given.setdefault(target.id, []).append(_is_set(node.value, module, set()))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            is_set = _is_set_type(node.annotation, module) or _is_set(node.value, module, set())
            given.setdefault(node.target.id, []).append(is_set)
    return {name for name, are_sets in given.items() if all(are_sets)}


def _is_set_type(annotation: ast.expr | None, module: Module) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.partition("[")[0] in _SET_TYPES
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return annotation is not None and module.name_of(annotation) in _SET_TYPES


def _is_set(node: ast.expr, module: Module, sets: set[str]) -> bool:
    """Whether it is a set, or goes through one in the set's order."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name():
            return node.id in sets
        case ast.BinOp():
            return _is_set(node.left, module, sets) or _is_set(node.right, module, sets)
        case ast.Call(func=ast.Attribute() as method) if method.attr in _OF_SETS:
            return _is_set(method.value, module, sets)
        case ast.Call():
            name = module.name_of(node.func)
            kept = name in _KEEPS_ORDER and any(_is_set(a, module, sets) for a in node.args)
            return kept or name in _SETS
    return False


def _drives(body: Sequence[ast.AST], module: Module) -> bool:
    """Whether durable calls are made there."""
    for part in body:
        for node in ast.walk(part):
            if isinstance(node, ast.Await):
                return True
            if isinstance(node, ast.Call) and module.is_durable(node):
                return True
    return False
