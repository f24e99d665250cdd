"""What the names in a candidate's source stand for, as far as the text alone tells.

Aliases (``import torch as t``, ``cuda = t.cuda``, ``self.f = t.mm``), ``getattr`` and ``importlib`` with strings that
are constant or built from constants, dictionaries of functions and default arguments are followed; anything else is
unknown and never guessed. Nothing is executed.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

_DEPTH = 8
_LOAD = ast.Load()
_NAMING = ast.Name | ast.Attribute | ast.Subscript | ast.Call
_PASSED_ON = frozenset((
    "os", "sys", "subprocess", "ctypes", "socket", "threading", "gc", "inspect", "builtins", "importlib", "pickle", "traceback", "shutil",
    "tempfile", "mmap", "weakref",
))  # fmt: skip
_SETTERS = {
    "builtins.setattr", "builtins.delattr", "builtins.object.__setattr__", "builtins.type.__setattr__", "unittest.mock.patch.object",
}  # fmt: skip
Binding = ast.expr | str | None
"""An expression to follow, a dotted path, or None where the text does not tell."""


class Use(NamedTuple):
    """A place in the source that names ``path``, e.g. ``torch.cuda.Event``."""

    node: ast.AST
    path: str

    @property
    def line(self) -> int:
        """Line in the source, counted from 1."""
        return getattr(self.node, "lineno", 0)


class _Scope:
    def __init__(self, parent: _Scope | None, *, is_class: bool = False) -> None:
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

    def find(self, name: str) -> tuple[_Scope, list[Binding]] | None:
        scope: _Scope | None = self
        first = True
        while scope is not None:
            if name in scope.bindings and (first or not scope.is_class):
                return scope, scope.bindings[name]
            scope, first = scope.parent, False
        return None


class Source:
    """A parsed candidate with resolved names. Build with :func:`analyse`."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = tuple(ast.walk(tree))
        """Every node, in the order of ``ast.walk``: many checks look at all of them."""
        self.scopes: dict[ast.AST, _Scope] = {}
        self.members: dict[str, list[tuple[_Scope, ast.expr]]] = {}
        """Attribute name to what is assigned to it on ``self`` anywhere."""
        self._known: dict[ast.AST, set[str]] = {}
        self.module = _Scope(None)
        self._bind(tree, self.module)

    def uses(self) -> Sequence[Use]:
        """Every expression that names a known path, and every import."""
        return self._uses

    @cached_property
    def _uses(self) -> tuple[Use, ...]:
        return tuple(self._find_uses())

    def _find_uses(self) -> Iterator[Use]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (Use(node, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from (Use(node, _direct(f"{node.module}.{alias.name}")) for alias in node.names)
            elif isinstance(node, _NAMING) and isinstance(getattr(node, "ctx", _LOAD), ast.Load):
                yield from (Use(node, path) for path in self.paths(node))

    def calls(self) -> Sequence[tuple[ast.Call, str]]:
        """Every call of a known path."""
        return self._calls

    @cached_property
    def _calls(self) -> tuple[tuple[ast.Call, str], ...]:
        return tuple((node, path) for node in self.nodes if isinstance(node, ast.Call) for path in self.paths(node.func))

    def stores(self) -> Sequence[Use]:
        """Every known path that is assigned to, deleted, or set by ``setattr``."""
        return self._stores

    @cached_property
    def _stores(self) -> tuple[Use, ...]:
        return tuple(self._find_stores())

    def _find_stores(self) -> Iterator[Use]:
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                yield from (Use(node, f"{path}.{node.attr}") for path in self.paths(node.value))
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                yield from (Use(node, path) for path in self._item(node))
            elif isinstance(node, ast.Call) and len(node.args) >= 2 and self.paths(node.func) & _SETTERS:
                name = self.text(node.args[1]) or "?"
                yield from (Use(node, f"{path}.{name}") for path in self.paths(node.args[0]))

    def attributes(self) -> Iterator[ast.Attribute]:
        """Every attribute access, whatever its object."""
        yield from (node for node in self.nodes if isinstance(node, ast.Attribute))

    def text(self, node: ast.AST, depth: int = 0) -> str | None:
        """The string that an expression gives, where it is built from constants."""
        if depth > _DEPTH:
            return None
        match node:
            case ast.Constant(value=str(value)):
                return value
            case ast.Name(id=name):
                found = self._scope(node).find(name)
                if found is not None and len(found[1]) == 1 and isinstance(found[1][0], ast.expr):
                    return self.text(found[1][0], depth + 1)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return _joined([self.text(left, depth + 1), self.text(right, depth + 1)])
            case ast.JoinedStr(values=values):
                return _joined([self.text(value, depth + 1) for value in values])
            case ast.FormattedValue(value=value, format_spec=None):
                return self.text(value, depth + 1)
            case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=None, step=ast.UnaryOp(operand=ast.Constant(value=1)))):
                inner = self.text(value, depth + 1)
                return inner[::-1] if inner is not None else None
            case ast.Call(func=ast.Attribute(value=glue, attr="join"), args=[ast.List(elts=parts) | ast.Tuple(elts=parts)]):
                between = self.text(glue, depth + 1)
                pieces = [self.text(part, depth + 1) for part in parts]
                return None if between is None or None in pieces else between.join(p for p in pieces if p is not None)
            case ast.Call(func=ast.Name(id="chr"), args=[ast.Constant(value=int(code))]) if 0 <= code < 0x110000:
                return chr(code)
        return None

    def paths(self, node: ast.AST) -> set[str]:
        """Dotted paths that an expression may stand for; builtins as ``builtins.NAME``. Empty when unknown."""
        if node not in self._known:
            self._known[node] = set()  # what a name that leads back to itself sees
            self._known[node] = self._resolve(node)
        return self._known[node]

    def _resolve(self, node: ast.AST) -> set[str]:
        match node:
            case ast.Name(id=name):
                return self._name(name, self._scope(node))
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if attr in self.members:
                return {path for _, value in self.members[attr] for path in self.paths(value)}
            case ast.Attribute(value=value, attr=attr):
                return {_direct(f"{path}.{attr}") for path in self.paths(value)}
            case ast.Call():
                return self._call(node)
            case ast.Subscript():
                return self._item(node)
            case ast.IfExp(body=body, orelse=orelse):
                return self.paths(body) | self.paths(orelse)
            case ast.BoolOp(values=values):
                return {path for value in values for path in self.paths(value)}
            case ast.NamedExpr(value=value):
                return self.paths(value)
        return set()

    def _name(self, name: str, scope: _Scope) -> set[str]:
        found = scope.find(name)
        if found is None:
            return {f"builtins.{name}"} if hasattr(builtins, name) else set()
        paths: set[str] = set()
        for value in found[1]:
            if isinstance(value, str):
                paths.add(value)
            elif value is not None:
                paths |= self.paths(value)
        return paths

    def _call(self, node: ast.Call) -> set[str]:
        match node:
            case ast.Call(func=ast.Call(func=getter, args=[named]), args=[owner]) if "operator.attrgetter" in self.paths(getter):
                return self._member(owner, named)
            case ast.Call(func=ast.Attribute(attr="__getattribute__" | "__getattr__"), args=[owner, named]):
                return self._member(owner, named)
            case ast.Call(func=ast.Attribute(value=owner, attr="__getattribute__" | "__getattr__"), args=[named]):
                return self._member(owner, named)
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=owner, attr="__dict__"), attr="get" | "pop" | "__getitem__"), args=[named, *_]
            ):
                return self._member(owner, named)
            case ast.Call(func=called, args=[getter, ast.List(elts=names) | ast.Tuple(elts=names), owner]):
                dotted = [self.text(name) for name in names]
                if "functools.reduce" in self.paths(called) and "builtins.getattr" in self.paths(getter) and None not in dotted:
                    return {_direct(".".join([path, *filter(None, dotted)])) for path in self.paths(owner)}
        functions = self.paths(node.func)
        if not functions or not node.args:
            return set()
        if "builtins.getattr" in functions and len(node.args) >= 2:
            name = self.text(node.args[1])
            return {_direct(f"{path}.{name}") for path in self.paths(node.args[0])} if name else set()
        if functions & {"importlib.import_module", "builtins.__import__"}:
            name = self.text(node.args[0])
            if name and "builtins.__import__" in functions and len(node.args) < 4:
                name = name.partition(".")[0]
            return {name} if name else set()
        if "functools.partial" in functions:
            return self.paths(node.args[0])
        return set()

    def _member(self, owner: ast.expr, named: ast.expr) -> set[str]:
        name = self.text(named)
        return {_direct(f"{path}.{name}") for path in self.paths(owner)} if name else set()

    def _item(self, node: ast.Subscript) -> set[str]:
        """``sys.modules["x"]``, ``x.__dict__["y"]``, ``vars(x)["y"]``, ``globals()["y"]`` and tables of functions."""
        key = self.text(node.slice)
        match node.value:
            case ast.Dict(values=values):
                return {path for value in values for path in self.paths(value)}
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return {path for part in parts for path in self.paths(part)}
            case ast.Call(func=function, args=args) if key is not None:
                called = self.paths(function)
                if "builtins.vars" in called and args:
                    return {f"{path}.{key}" for path in self.paths(args[0])}
                if called & {"builtins.globals", "builtins.locals"}:
                    return self._name(key, self._scope(node))
            case ast.Name(id=name):
                return self._table(name, node)
        if key is None:
            return set()
        found = set()
        for path in self.paths(node.value):
            if path == "sys.modules":
                found.add(key)
            elif path.endswith(".__dict__"):
                found.add(f"{path.removesuffix('.__dict__')}.{key}")
            elif path == "builtins.__builtins__":
                found.add(f"builtins.{key}")
        return found

    def _table(self, name: str, node: ast.Subscript) -> set[str]:
        found = self._scope(node).find(name)
        paths: set[str] = set()
        for value in found[1] if found else []:
            if isinstance(value, ast.Dict):
                paths |= {path for entry in value.values for path in self.paths(entry)}
            elif isinstance(value, ast.expr) and "sys.modules" in self.paths(value) and (key := self.text(node.slice)):
                paths.add(key)
        return paths

    def _scope(self, node: ast.AST) -> _Scope:
        return self.scopes.get(node, self.module)  # annotations have none of their own

    def _bind(self, node: ast.AST, scope: _Scope) -> None:
        """Walk once: give every node its scope and every scope its names."""
        self.scopes[node] = scope
        match node:
            case ast.Import(names=names):
                for alias in names:
                    scope.bind(alias.asname or alias.name.partition(".")[0], alias.name if alias.asname else alias.name.partition(".")[0])
            case ast.ImportFrom(module=module, names=names, level=level):
                for alias in names:
                    scope.bind(alias.asname or alias.name, _direct(f"{module}.{alias.name}") if module and not level else None)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._bind_function(node, scope)
                return
            case ast.ClassDef(name=name, bases=bases, keywords=keywords, decorator_list=decorators, body=body):
                scope.bind(name, None)
                inner = _Scope(scope, is_class=True)
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
            case ast.AugAssign(target=target) | ast.For(target=target) | ast.comprehension(target=target):
                self._bind_target(target, None, scope)
            case ast.withitem(optional_vars=target) if target is not None:
                self._bind_target(target, None, scope)
            case ast.ExceptHandler(name=name) if name:
                scope.bind(name, None)
        for child in ast.iter_child_nodes(node):
            self._bind(child, scope)

    def _bind_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: _Scope) -> None:
        if not isinstance(node, ast.Lambda):
            scope.bind(node.name, None)
            for decorator in node.decorator_list:
                self._bind(decorator, scope)
        inner = _Scope(scope)
        args = node.args
        named = [*args.posonlyargs, *args.args]
        defaults: list[ast.expr | None] = [None] * (len(named) - len(args.defaults)) + list(args.defaults)
        for argument, default in (*zip(named, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)):
            inner.bind(argument.arg, default)
        for extra in (args.vararg, args.kwarg):
            if extra is not None:
                inner.bind(extra.arg, None)
        for given in (*args.defaults, *args.kw_defaults):
            if given is not None:
                self._bind(given, scope)
        for child in node.body if isinstance(node.body, list) else [node.body]:
            self._bind(child, inner)

    def _bind_target(self, target: ast.AST, value: ast.expr | None, scope: _Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.bind(name, value)
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if value is not None:
                self.members.setdefault(attr, []).append((scope, value))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                values = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts) else [None] * len(parts)
                for part, item in zip(parts, values, strict=True):
                    self._bind_target(part, item, scope)
            case ast.Starred(value=inner):
                self._bind_target(inner, None, scope)


def _joined(parts: list[str | None]) -> str | None:
    return None if None in parts else "".join(part for part in parts if part is not None)


def _direct(path: str) -> str:
    """``torch.os.fork`` to ``os.fork``: modules that other modules happen to hold."""
    parts = path.split(".")
    for index in range(len(parts) - 1, 0, -1):
        if parts[index] in _PASSED_ON:
            return ".".join(parts[index:])
    return path


@lru_cache(maxsize=8)
def analyse(tree: ast.Module) -> Source:
    """The names of a tree, resolved; the last few trees are remembered, so that all checks share the work."""
    return Source(tree)


@lru_cache(maxsize=2**16)
def starts(path: str, *roots: str) -> bool:
    """True when ``path`` is one of ``roots`` or lies below one."""
    return any(path == root or path.startswith(root + ".") for root in roots)


def kernels(source: Source) -> list[ast.FunctionDef]:
    """Functions that a Triton decorator turns into kernels or helpers of kernels."""
    found = []
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                named = decorator.func if isinstance(decorator, ast.Call) else decorator
                if any(path in ("triton.jit", "triton.runtime.jit.jit", "triton.experimental.gluon.jit") for path in source.paths(named)):
                    found.append(node)
                    break
    return found
