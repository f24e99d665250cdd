"""Finds which names a candidate's source binds where, and to what."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from kernelllm.judge.checks.string_values import Element, Parameter

_PASSED_ON = frozenset((
    "os", "sys", "subprocess", "ctypes", "socket", "threading", "gc", "inspect", "builtins", "importlib", "pickle", "traceback", "shutil",
    "tempfile", "mmap", "weakref",
))  # fmt: skip
_OTHER_NAMES = {"bltns": "builtins"}
"""What the standard library calls a module that it imports, beside leading underscores."""
Binding = ast.expr | Element | Parameter | str | None
"""An expression to follow, a dotted path, or None where the text does not tell."""


class Scope:
    def __init__(self, parent: Scope | None, *, is_class: bool = False) -> None:
        self.parent = parent
        self.is_class = is_class
        self.bindings: dict[str, list[Binding]] = {}
        self.module_names: set[str] = set()

    def bind(self, name: str, value: Binding) -> None:
        scope = self
        if name in self.module_names:
            while scope.parent is not None:
                scope = scope.parent
        scope.bindings.setdefault(name, []).append(value)

    def find(self, name: str) -> tuple[Scope, list[Binding]] | None:
        scope: Scope | None = self
        first = True
        while scope is not None:
            if name in scope.bindings and (first or not scope.is_class):
                return scope, scope.bindings[name]
            scope, first = scope.parent, False
        return None


class Scopes:
    """The scope of every node of a tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.of: dict[ast.AST, Scope] = {}
        self.members: dict[str, list[tuple[Scope, ast.expr]]] = {}
        """Attribute name to what is assigned to it on ``self`` anywhere."""
        self.module = Scope(None)
        self._bind(tree, self.module)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        """Walk once: give every node its scope and every scope its names."""
        self.of[node] = scope
        match node:
            case ast.Import(names=names):
                for alias in names:
                    scope.bind(alias.asname or alias.name.partition(".")[0], alias.name if alias.asname else alias.name.partition(".")[0])
            case ast.ImportFrom(module=module, names=names, level=level):
                for alias in names:
                    scope.bind(alias.asname or alias.name, direct(f"{module}.{alias.name}") if module and not level else None)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._bind_function(node, scope)
                return
            case ast.ClassDef(name=name, bases=bases, keywords=keywords, decorator_list=decorators, body=body):
                scope.bind(name, None)
                inner = Scope(scope, is_class=True)
                for child in (*bases, *keywords, *decorators):
                    self._bind(child, scope)
                for child in body:
                    self._bind(child, inner)
                return
            case ast.Global(names=names):
                scope.module_names.update(names)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind_target(target, value, scope)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._bind_target(target, value, scope)
            case ast.NamedExpr(target=target, value=value):
                self._bind_target(target, value, scope)
            case ast.AugAssign(target=target):
                self._bind_target(target, None, scope)
            case ast.For(target=target, iter=iterable) | ast.comprehension(target=target, iter=iterable):
                self._bind_target(target, Element(iterable), scope)
            case ast.withitem(optional_vars=target) if target is not None:
                self._bind_target(target, None, scope)
            case ast.ExceptHandler(name=name) if name:
                scope.bind(name, None)
        for child in ast.iter_child_nodes(node):
            self._bind(child, scope)

    def _bind_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> None:
        if not isinstance(node, ast.Lambda):
            scope.bind(node.name, None)
            for decorator in node.decorator_list:
                self._bind(decorator, scope)
        inner = Scope(scope)
        args = node.args
        named = [*args.posonlyargs, *args.args]
        defaults: list[ast.expr | None] = [None] * (len(named) - len(args.defaults)) + list(args.defaults)
        for argument, default in (*zip(named, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)):
            inner.bind(argument.arg, Parameter(default, node, argument.arg))
        for extra in (args.vararg, args.kwarg):
            if extra is not None:
                inner.bind(extra.arg, None)
        for given in (*args.defaults, *args.kw_defaults):
            if given is not None:
                self._bind(given, scope)
        for child in node.body if isinstance(node.body, list) else [node.body]:
            self._bind(child, inner)

    def _bind_target(self, target: ast.AST, value: ast.expr | Element | None, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.bind(name, value)
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if isinstance(value, ast.expr):
                self.members.setdefault(attr, []).append((scope, value))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                values: Sequence[ast.expr | Element | None] = [None] * len(parts)
                if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts):
                    values = value.elts
                elif isinstance(value, Element) and value.part is None:
                    values = [Element(value.iterable, index) for index in range(len(parts))]
                for part, item in zip(parts, values, strict=True):
                    self._bind_target(part, item, scope)
            case ast.Starred(value=inner):
                self._bind_target(inner, None, scope)


def direct(path: str) -> str:
    """``torch.os.fork`` to ``os.fork``, ``torch.functional.torch.jit`` to ``torch.jit``: modules that other modules happen to hold."""
    parts = path.split(".")
    for index in range(len(parts) - 1, 0, -1):
        if parts[index] in ("torch", parts[0]):
            return ".".join(parts[index:])
        if parts[index] == "_C" and parts[0] == "torch":
            return ".".join(["torch", *parts[index:]])
        name = _OTHER_NAMES.get(parts[index], parts[index].strip("_"))
        if name in _PASSED_ON:
            return ".".join([name, *parts[index + 1 :]])
    return path
