"""The text of a module without what does not matter: names, comments, docstrings, layout and, where asked, numbers."""

from __future__ import annotations

import ast
import builtins
from functools import lru_cache
from typing import Final

from kernelllm.core.errors import UsageError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import digest

_KEPT: Final = frozenset(dir(builtins)) | {"self", "get_inputs", "get_init_inputs", "forward", "__init__"}
_OUTSIDE: Final = ("get_inputs", "get_init_inputs")


@lru_cache(maxsize=64)
def canonical(source: str, *, numbers: bool = True) -> str:
    """The module with every name of its own replaced by ``v0``, ``v1``, ... in the order of their first use.

    Two modules that differ in names, comments and docstrings alone have the same text. Without ``numbers`` every number is 0 and the
    functions that draw inputs are left out, so that sizes do not matter either. Raises UsageError for text that does not parse.
    """
    try:
        tree = syntax_tree(source)
    except SyntaxError as error:
        raise UsageError(f"The module does not parse: {error.msg} (line {error.lineno}).") from error
    if not numbers:
        tree.body = [s for s in tree.body if not (isinstance(s, ast.FunctionDef) and s.name in _OUTSIDE)]
        tree.body = [s for s in tree.body if not _is_constant(s)]
    return ast.unparse(_Renamed(_without_docstrings(tree), numbers).visit(tree))


def fingerprint(source: str, *, numbers: bool = True) -> str:
    """SHA-256 of :func:`canonical`, hexadecimal."""
    return digest(canonical(source, numbers=numbers))


def called(source: str) -> tuple[str, ...]:
    """Names of the functions, layers and methods that a module calls, in order: ``Linear``, ``relu``, ``sum``."""
    found: list[str] = []
    for node in ast.walk(syntax_tree(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)) if name not in _KEPT:
                found.append(name)
            case _:
                pass
    return tuple(found)


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign | ast.AnnAssign) and not any(isinstance(n, ast.Call) for n in ast.walk(statement))


def _without_docstrings(tree: ast.Module) -> frozenset[str]:
    """Take docstrings out of a module; the names that it imports."""
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))] or [ast.Pass()]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    return frozenset(imported)


class _Renamed(ast.NodeTransformer):
    """Names, arguments, attributes of ``self``, classes and functions get numbers; annotations go."""

    def __init__(self, imported: frozenset[str], numbers: bool) -> None:
        self._kept = _KEPT | imported
        self._numbers = numbers
        self._known: dict[str, str] = {}

    def _name(self, name: str) -> str:
        return name if name in self._kept else self._known.setdefault(name, f"v{len(self._known)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._name(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._name(node.arg))

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = self._name(node.attr)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._name(node.name)
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._name(node.name)
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        return ast.copy_location(ast.Assign([node.target], node.value), node) if node.value else None

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return ast.Constant(0) if number and not self._numbers else node
