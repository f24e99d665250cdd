"""The definitions of a module's text by name, and where a name comes from."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, Final

from kernelllm.core.text import syntax_tree

STANDARD: Final = frozenset(
    ("torch", "math", "typing", "collections", "functools", "itertools", "dataclasses", "enum", "copy", "numbers", "warnings", "types",
     "abc", "operator", "random", "numpy", "contextlib", "inspect", "string", "re", "__future__")
)  # fmt: skip
"""What a text may import."""
OWN_FORMS: Final = {"einops": "kernelllm.pairs.einops_forms", "einops.layers.torch": "kernelllm.pairs.einops_forms"}
"""Packages whose functions a text gets in a short form of this package."""
Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom


class PackageModule:
    """One module: its globals while the program runs, and the statements that made them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: dict[str, Definition] = {}
        """Global name to the last statement that binds it and fits what it is now."""
        try:
            self.module = sys.modules.get(name) or importlib.import_module(name)
            tree = syntax_tree(inspect.getsource(self.module))
        except Exception:  # noqa: BLE001 - a module of others without a text, or that raises when it is imported
            self.module = sys.modules.get(name) or ModuleType(name)
            return
        for statement in _statements(tree.body):
            for bound_name in bound(statement):
                if not self._other(bound_name, statement):
                    self.nodes[bound_name] = statement

    def _other(self, name: str, statement: Definition) -> bool:
        """Whether an earlier statement is the one that counts: this one stands in a branch that was not taken."""
        if name not in self.nodes:
            return False
        value = inspect.unwrap(vars(self.module).get(name, PackageModule))
        line: int | None = getattr(getattr(value, "__code__", None), "co_firstlineno", None)
        if line is None:
            there = vars(self.module).get(name) is not None
            return there and isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "None"
        earlier = self.nodes[name]
        return abs(earlier.lineno - line) < abs(statement.lineno - line)

    def home_of(self, name: str) -> tuple[PackageModule, str, str]:
        """(module, name there, kind) of a global name, imports followed: ``own``, ``module`` (a module itself) or ``outside``
        (no text of it at hand, such as torch's)."""
        node = self.nodes.get(name)
        value: Any = vars(self.module).get(name)
        if isinstance(value, ModuleType) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            return scope_of(value.__name__), "", "module"
        if not isinstance(node, ast.ImportFrom):
            home = str(getattr(value, "__module__", None) or "")
            if node is None and home and home != self.name and getattr(value, "__qualname__", None):
                return scope_of(home), value.__qualname__, "own" if value.__qualname__ in scope_of(home).nodes else "outside"
            return self, name, "own" if node is not None else "missing"
        original = next(a.name for a in node.names if (a.asname or a.name) == name)
        package = str(getattr(self.module, "__package__", None) or "")
        source = ("." * node.level + (node.module or "")) if node.level else str(node.module)
        try:
            source = importlib.util.resolve_name(source, package) if node.level else source
        except ImportError:
            return self, name, "missing"
        if source.partition(".")[0] in STANDARD or source in OWN_FORMS:
            return scope_of(source), original, "outside"
        there = scope_of(source)
        if there is self:
            return self, name, "missing"
        return there.home_of(original)


@cache
def scope_of(name: str) -> PackageModule:
    """The module of that name; one that cannot be imported has no names."""
    return PackageModule(name)


def assigned(node: Definition) -> ast.expr:
    """What an assignment gives its name."""
    value: Any = getattr(node, "value", None)
    return value if isinstance(value, ast.expr) else ast.Constant(None)


def bound(statement: ast.stmt) -> set[str]:
    """Names that a statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).partition(".")[0] for a in statement.names}
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AnnAssign) else []
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def runtime(node: ast.expr, scope: PackageModule) -> Any:
    """What a dotted name of a module is while the program runs."""
    if isinstance(node, ast.Name):
        return vars(scope.module).get(node.id, getattr(builtins, node.id, None))
    if isinstance(node, ast.Subscript):  # Generic[T]
        return runtime(node.value, scope)
    value = runtime(node.value, scope) if isinstance(node, ast.Attribute) else None
    if not isinstance(node, ast.Attribute) or not isinstance(value, ModuleType | type):
        return None
    if isinstance(value, ModuleType) and not hasattr(value, node.attr) and value.__name__.partition(".")[0] in STANDARD:
        importlib.import_module(value.__name__)
    return getattr(value, node.attr, None)


def _statements(body: list[ast.stmt]) -> Iterator[Definition]:
    """Definitions at the top of a module, and in the branches there."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _statements([*statement.orelse, *statement.body])
        elif isinstance(statement, ast.Try):
            yield from _statements([*(s for h in statement.handlers for s in h.body), *statement.body])
        elif isinstance(statement, ast.With):
            yield from _statements(statement.body)
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom):
            yield statement
