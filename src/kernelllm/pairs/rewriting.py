"""A definition's syntax tree as a text that stands alone has it: other names, less of what does not matter."""

from __future__ import annotations

import ast
import builtins
from types import ModuleType
from typing import Any, Final, Protocol

from kernelllm.core.text import syntax_tree
from kernelllm.pairs.package_module import STANDARD, PackageModule, runtime, scope_of

_SILENT: Final = frozenset(("logger", "log", "logging", "warnings", "_logger", "LOG", "LOGGER", "warn", "print", "warn_once"))
_KEPT_DECORATORS: Final = frozenset(
    ("property", "staticmethod", "classmethod", "dataclass", "functools", "contextmanager", "setter", "wraps")
)


class GrowingText(Protocol):
    """The text that a definition is rewritten for: it is told which names the definition needs."""

    strings: set[str]
    attributes: set[str]

    def follows(self, name: str, scope: PackageModule) -> bool: ...

    def outside(self, module: str, name: str) -> str | None: ...

    def named(self, scope: PackageModule, name: str) -> str | None: ...


class Rewritten(ast.NodeTransformer):
    """A definition with its module's names as the text has them."""

    def __init__(self, into: GrowingText, scope: PackageModule) -> None:
        self._into, self._scope = into, scope
        self._local: frozenset[str] = frozenset()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer = self._local
        if not outer:
            self._local = frozenset(_local_names(node))
        node.returns = None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        node.decorator_list = [d for d in node.decorator_list if _kept_decorator(d)]
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        self.generic_visit(node)
        node.body = _without_pass(node.body)
        self._local = outer
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        outer = self._local
        self._local = outer | {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        self.generic_visit(node)
        self._local = outer
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) or (isinstance(node.value, ast.Call) and _root(node.value.func) in _SILENT):
            return None if isinstance(node.value, ast.Constant) else ast.Pass()
        self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        told = ast.unparse(node.test)
        if told in ("torch.jit.is_scripting()", "TYPE_CHECKING", "torch.jit.is_tracing()", "torch.onnx.is_in_onnx_export()"):
            return [x for s in node.orelse for x in _listed(self.visit(s))] or [ast.Pass()]
        if told == "not torch.jit.is_scripting()":
            return [x for s in node.body for x in _listed(self.visit(s))]
        self.generic_visit(node)
        node.body = _without_pass(node.body)
        if all(isinstance(s, ast.Pass) for s in (*node.body, *node.orelse)):
            return ast.Pass()
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return ast.Pass()
        made = ast.Assign([node.target], node.value)
        self.generic_visit(made)
        return made

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        """A table of classes or functions keeps what the arguments name."""
        if not self._local and node.keys and all(isinstance(k, ast.Constant) and isinstance(k.value, str) for k in node.keys):
            pairs = [
                (k, v) for k, v in zip(node.keys, node.values, strict=True)
                if isinstance(v, ast.Constant) or not isinstance(k, ast.Constant) or k.value in self._into.strings
            ]  # fmt: skip
            node.keys, node.values = [k for k, _ in pairs], [v for _, v in pairs]
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        value = runtime(node.value, self._scope) if _root(node) not in self._local else None
        if isinstance(value, ModuleType) and isinstance(node.ctx, ast.Load) and self._into.follows(_root(node), self._scope):
            outside = value.__name__.partition(".")[0] in STANDARD
            told = self._into.outside(value.__name__, node.attr) if outside else self._into.named(scope_of(value.__name__), node.attr)
            if told:
                return syntax_tree(told, mode="eval").body
        self._into.attributes.add(node.attr)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """What asks for an object's class, or looks into a registry, is answered where neither comes along."""
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]) if self._of_package(kind):
                return ast.Constant(False)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=registry)), args=[_, ast.Name() as default]) if self._is_registry(registry):
                answer: ast.AST = self.visit(default)
                return answer
            case _:
                self.generic_visit(node)
                return node

    def _of_package(self, kind: ast.expr) -> bool:
        """Whether a class is one of the package's that no tensor, layer or setting is."""
        import torch

        value = runtime(kind, self._scope)
        plain = not isinstance(value, type) or issubclass(value, torch.nn.Module | torch.Tensor | int | float | str | tuple | list | dict)
        return not plain and value.__module__.partition(".")[0] not in ("builtins", *STANDARD)

    def _is_registry(self, name: str) -> bool:
        value = vars(self._scope.module).get(name)
        return name not in self._local and type(value).__module__.partition(".")[0] not in ("builtins", *STANDARD)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and node.value.isidentifier():
            self._into.attributes.add(node.value)  # getattr(self, "name")
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._local or not isinstance(node.ctx, ast.Load):
            return node
        if (node.id not in self._scope.nodes and hasattr(builtins, node.id)) or not self._into.follows(node.id, self._scope):
            return node
        told = self._into.named(self._scope, node.id)
        return syntax_tree(told, mode="eval").body if told else node


class Trimmed(ast.NodeTransformer):
    """Without calls of own methods that did not come along; where the base class did not come, with what it would have kept."""

    def __init__(self, methods: set[str], rootless: bool) -> None:
        self._methods, self._rootless = methods, rootless

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        import torch

        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            return node
        told = ast.unparse(call.func.value)
        if told == "self" and call.func.attr not in self._methods and not hasattr(torch.nn.Module, call.func.attr):
            return ast.Pass()
        if told == "self" and call.func.attr == "apply":
            return ast.Pass()
        if self._rootless and told.startswith("super(") and call.func.attr == "__init__" and (call.args or call.keywords):
            kept = [a.id for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Name)]
            call.args, call.keywords = [], []
            return [node, *(syntax_tree(f"self.{n} = {n}").body[0] for n in kept if n == "config")]
        return node


class Pruned(ast.NodeTransformer):
    """Without the branches that read names which nothing asked for when the text ran."""

    def __init__(self, unread: set[str]) -> None:
        self._unread = unread

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body = _without_pass(node.body)
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        reads = [{n.id for s in part for n in ast.walk(s) if isinstance(n, ast.Name)} & self._unread for part in (node.body, node.orelse)]
        if reads[0]:
            return node.orelse if node.orelse and not reads[1] else ast.Pass()
        if reads[1]:
            node.orelse = []
        return node


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found] if found is not None else []


def _without_pass(body: list[ast.stmt]) -> list[ast.stmt]:
    return [s for s in body if not isinstance(s, ast.Pass)] or [ast.Pass()]


def _kept_decorator(node: ast.expr) -> bool:
    parts = ast.unparse(node.func if isinstance(node, ast.Call) else node).split(".")
    return bool(_KEPT_DECORATORS & set(parts)) or parts in (["torch", "no_grad"],)


def _local_names(node: ast.FunctionDef) -> set[str]:
    found: set[str] = set()
    for n in ast.walk(node):
        if isinstance(n, ast.arg):
            found.add(n.arg)
        elif isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load):
            found.add(n.id)
        elif isinstance(n, ast.FunctionDef | ast.ExceptHandler) and n.name and n is not node:
            found.add(n.name)
        elif isinstance(n, ast.Import | ast.ImportFrom):
            found |= {(a.asname or a.name).partition(".")[0] for a in n.names}
    return found
