"""What the names in a module mean, as far as its imports and decorators say."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef

_WORKFLOW = {"durable.workflow", "durable.decorators.workflow"}
_STEP = {"durable.step", "durable.decorators.step"}
_WAITING = ("gather", "map", "select", "sleep", "sleep_until", "wait_event", "once")
_AWAITED = {f"durable.{word}" for word in _WAITING}
_BLOCKING = {f"durable.sync.{word}" for word in (*_WAITING, "run")}


@dataclass
class Module:
    """The functions of a module by what they are, and where its names come from.

    Attributes:
        imported: a name of the module, and the dotted name it stands for.
        plain: functions at the top of the module that are neither workflow nor step.
        durable: workflows and steps; `awaited` are those of them that are async.
    """

    imported: dict[str, str] = field(default_factory=dict)
    workflows: list[Function] = field(default_factory=list)
    plain: dict[str, Function] = field(default_factory=dict)
    durable: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, tree: ast.Module) -> Module:
        """Read it."""
        module = cls()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module._import(node)
        for node in ast.walk(tree):
            if isinstance(node, Function):
                module._sort(node)
        for name, node in list(module.plain.items()):
            if node not in tree.body:
                del module.plain[name]
        return module

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                self.imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif alias.asname:
                self.imported[alias.asname] = alias.name
            else:
                top = alias.name.split(".")[0]
                self.imported[top] = top

    def _sort(self, node: Function) -> None:
        kinds = {self.name_of(decorator) for decorator in node.decorator_list}
        if kinds & _WORKFLOW:
            self.workflows.append(node)
        elif not kinds & _STEP:
            self.plain[node.name] = node
        if kinds & (_WORKFLOW | _STEP):
            self.durable.add(node.name)
            if isinstance(node, ast.AsyncFunctionDef):
                self.awaited.add(node.name)

    def is_step(self, node: ast.AST) -> bool:
        """Whether it is a step's function: its body may do what it likes."""
        return isinstance(node, Function) and bool(
            {self.name_of(decorator) for decorator in node.decorator_list} & _STEP
        )

    def name_of(self, node: ast.expr) -> str:
        """The dotted name of what an expression refers to, or calls; empty if it has none."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.name_of(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        if isinstance(node, ast.Call):
            return self.name_of(node.func)
        return ""

    def must_be_awaited(self, call: ast.Call) -> bool:
        """Whether the call does nothing unless it is awaited."""
        name, word = self._durable_name(call)
        always = word in {"call", "start"} and name in self.durable
        return name in _AWAITED or name in self.awaited or always

    def is_durable(self, call: ast.Call) -> bool:
        """Whether it is a call of a step or a workflow, or a durable word that waits."""
        name, _ = self._durable_name(call)
        return name in _AWAITED | _BLOCKING | self.durable

    def _durable_name(self, call: ast.Call) -> tuple[str, str]:
        """What is called, without options, and the method of it: `call`, `start` or none."""
        name, word = self.name_of(call.func), ""
        for method in ("call", "start"):
            if name.endswith(f".{method}"):
                name, word = name.removesuffix(f".{method}"), method
        if word or isinstance(call.func, ast.Call):  # else it is the options themselves
            name = name.removesuffix(".options")
        return name, word
