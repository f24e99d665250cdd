"""Finds what the names in a candidate's source stand for, as far as the text alone tells.

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

from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Finding
from kernelllm.judge.checks.scopes import Binding, Scope, Scopes, direct
from kernelllm.judge.checks.string_values import Element, Parameter, of_element, texts

_LOAD = ast.Load()
_NAMING = ast.Name | ast.Attribute | ast.Subscript | ast.Call
_SETTERS = {
    "builtins.setattr", "builtins.delattr", "builtins.object.__setattr__", "builtins.type.__setattr__", "unittest.mock.patch.object",
}  # fmt: skip

MATTER_WHEN_IMPORTED = frozenset((
    "reference", "ref", "problem", "model", "baseline", "original", "kernelbench", "KernelBench", "harness", "evaluate", "candidate",
    "kernelllm", "__main__", "antigravity", "this",
))  # fmt: skip
"""Modules whose import alone is an attempt at something: the names that a reference might have, and those of the judge."""


class Use(NamedTuple):
    """A place in the source that names ``path``, e.g. ``torch.cuda.Event``."""

    node: ast.AST
    path: str

    @property
    def line(self) -> int:
        """Line in the source, counted from 1."""
        return getattr(self.node, "lineno", 0)


class Source:
    """A parsed candidate with resolved names. Build with :func:`analyse`."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        nodes: list[ast.AST] = [tree]
        self.parents: dict[ast.AST, ast.AST] = {}
        """The node that each node stands in."""
        for node in nodes:
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                nodes.append(child)
        self.nodes = tuple(nodes)
        """Every node, in the order of ``ast.walk``: many checks look at all of them."""
        self.scopes = Scopes(tree)
        self.members = self.scopes.members
        self._known: dict[ast.AST, set[str]] = {}

    def uses(self) -> Sequence[Use]:
        """Every expression that names a known path, and every import."""
        return self._uses

    @cached_property
    def _uses(self) -> tuple[Use, ...]:
        return tuple(self._find_uses())

    def _find_uses(self) -> Iterator[Use]:
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (Use(node, alias.name) for alias in node.names if not self._idle(node, alias, alias.name))
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                paths = ((alias, f"{node.module}.{alias.name}") for alias in node.names)
                yield from (Use(node, direct(path)) for alias, path in paths if not self._idle(node, alias, path))
            elif isinstance(node, _NAMING) and isinstance(getattr(node, "ctx", _LOAD), ast.Load):
                yield from (Use(node, path) for path in self.paths(node))

    def _idle(self, node: ast.AST, alias: ast.alias, path: str) -> bool:
        """Whether an import is never used: whatever it brings, nothing is done with it."""
        if path.partition(".")[0] in MATTER_WHEN_IMPORTED or self._scope(node).is_class or self._by_table or alias.name == "*":
            return False
        if alias.asname is None and isinstance(node, ast.Import) and "." in alias.name:
            reads = self.named.get(alias.name.rpartition(".")[2], ())
            return not any(starts(p, path) for read in reads if isinstance(read, ast.Attribute) for p in self.paths(read))
        return not any(isinstance(read, ast.Name) for read in self.named.get(alias.asname or alias.name, ()))

    @cached_property
    def _by_table(self) -> bool:
        """Whether the file may reach its own names other than by writing them."""
        return not self.named.keys().isdisjoint(("globals", "locals", "vars", "modules", "__dict__", "__builtins__"))

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

    def texts(self, node: ast.AST) -> set[str] | None:
        """Every string that an expression may give, None where the text does not tell."""
        return texts(self, node)

    def text(self, node: ast.AST) -> str | None:
        """The string that an expression gives, where it is built from constants."""
        found = texts(self, node)
        return next(iter(found)) if found is not None and len(found) == 1 else None

    def bindings(self, node: ast.Name) -> list[Binding] | None:
        """What a name is bound to anywhere in its scope, None for a name that the file does not bind."""
        found = self._scope(node).find(node.id)
        return found[1] if found else None

    def is_local(self, node: ast.Name) -> bool:
        """Whether a name is bound in the innermost function or class around it."""
        return node.id in self._scope(node).bindings

    def arguments(self, parameter: Parameter) -> list[ast.expr] | None:
        """What the file's own calls give for a parameter, None where a function may be called in other ways."""
        function = parameter.function
        if isinstance(function, ast.Lambda) or function.decorator_list or function.args.vararg or function.args.kwarg:
            return None
        method = isinstance(self.parents.get(function), ast.ClassDef)
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][1 if method else 0 :]
        given: list[ast.expr] = [parameter.default] if parameter.default is not None else []
        for node in self.named.get(function.name, ()):
            call = self.parents.get(node)
            if not isinstance(call, ast.Call) or call.func is not node or isinstance(node, ast.Attribute) is not method:
                return None
            if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
                return None
            given += [a for name, a in zip(names, call.args, strict=False) if name == parameter.name]
            given += [k.value for k in call.keywords if k.arg == parameter.name]
        return given or None

    @cached_property
    def named(self) -> dict[str, list[ast.expr]]:
        """Every place where a name or an attribute is read, by that name."""
        found: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.setdefault(node.id if isinstance(node, ast.Name) else node.attr, []).append(node)
        return found

    @cached_property
    def docstrings(self) -> frozenset[ast.AST]:
        """Strings that stand alone."""
        return frozenset(node.value for node in self.nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))

    @cached_property
    def classes(self) -> frozenset[str]:
        """Names of the classes that the file defines."""
        return frozenset(node.name for node in self.nodes if isinstance(node, ast.ClassDef))

    def built_by(self, node: ast.Name) -> set[str]:
        """Names of what is called for every value of a name, ``?`` for any other value."""
        calls = [value.func if isinstance(value, ast.Call) else None for value in self.bindings(node) or []]
        return {called.id if isinstance(called, ast.Name) else "?" for called in calls}

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
                return {direct(f"{path}.{attr}") for path in self.paths(value)}
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

    def _name(self, name: str, scope: Scope) -> set[str]:
        found = scope.find(name)
        if found is None:
            return {f"builtins.{name}"} if hasattr(builtins, name) else set()
        paths: set[str] = set()
        for value in found[1]:
            if isinstance(value, str):
                paths.add(value)
            elif isinstance(value, Parameter):
                given = [*([value.default] if value.default is not None else []), *(self.arguments(value) or [])]
                paths |= {path for argument in given for path in self.paths(argument)}
            elif isinstance(value, Element):
                paths |= {path for part in of_element(self, value) or () for path in self.paths(part)}
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
                    return {direct(".".join([path, *filter(None, dotted)])) for path in self.paths(owner)}
        functions = self.paths(node.func)
        if not functions or not node.args:
            return set()
        if "builtins.getattr" in functions and len(node.args) >= 2:
            name = self.text(node.args[1])
            return {direct(f"{path}.{name}") for path in self.paths(node.args[0])} if name else set()
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
        return {direct(f"{path}.{name}") for path in self.paths(owner)} if name else set()

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

    def _scope(self, node: ast.AST) -> Scope:
        return self.scopes.of.get(node, self.scopes.module)  # annotations have none of their own


def uses_of(tree: ast.Module, check: str, *paths: str) -> list[Finding]:
    """A finding for each use of one of these paths, or of what lies below them."""
    return [Finding(check=check, message=f"Uses {use.path}.", line=use.line) for use in analyse(tree).uses() if starts(use.path, *paths)]


@lru_cache(maxsize=8)
def as_imported(text: str) -> ast.Module:
    """The tree without what runs only where the file is a program: ``if __name__ == "__main__":``. All who read it share it.

    Raises what :func:`kernelllm.core.text.syntax_tree` raises.
    """
    tree = syntax_tree(text)
    if "__main__" not in text:
        return tree
    for node in ast.walk(tree):  # it may say that it is one
        if isinstance(node, ast.Constant) and node.value == "__name__":
            return tree
        if isinstance(node, ast.Name) and node.id == "__name__" and not isinstance(node.ctx, ast.Load):
            return tree
    body: list[ast.stmt] = []
    for statement in tree.body:
        match statement:
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")])):
                body += statement.orelse
            case _:
                body.append(statement)
    return ast.Module(body=body, type_ignores=tree.type_ignores)


@lru_cache(maxsize=8)
def analyse(tree: ast.Module) -> Source:
    """The names of a tree, resolved; the last few trees are remembered, so that all checks share the work."""
    return Source(tree)


@lru_cache(maxsize=2**16)
def starts(path: str, *roots: str) -> bool:
    """True when ``path`` is one of ``roots`` or lies below one."""
    return any(path == root or path.startswith(root + ".") for root in roots)


def kernels(source: Source, decorators: tuple[str, ...]) -> list[ast.FunctionDef]:
    """Functions that one of these decorators, or a call of it, turns into kernels or helpers of kernels."""
    by_call = {
        argument.id for call, path in source.calls() if path in decorators for argument in call.args[:1] if isinstance(argument, ast.Name)
    }
    functions = (node for node in source.nodes if isinstance(node, ast.FunctionDef))
    return [f for f in functions if f.name in by_call or any(_is(source, decorator, decorators) for decorator in f.decorator_list)]


def _is(source: Source, decorator: ast.expr, decorators: tuple[str, ...]) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return not source.paths(named).isdisjoint(decorators)
