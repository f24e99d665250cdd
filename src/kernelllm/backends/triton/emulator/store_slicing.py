"""A program slice of a kernel: only what its store addresses depend on, without products, sums and most loads.

What is left of it computes the addresses and masks of its stores and atomics, at a small part of the cost. A statement is kept where
anything that is kept may need it; where that cannot be told, nothing is known of the kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import triton.language as tl
from triton.runtime import interpreter as ti
from triton.runtime.jit import JITFunction

from kernelllm.backends.triton.kernel_arguments import source_lines
from kernelllm.core.text import syntax_tree

_ATOMICS = ("atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor", "atomic_xchg")
_VALUES = {"store": "value", **dict.fromkeys(_ATOMICS, "val")}
"""Functions of the language that write, and what they call the value, their second argument."""
_WRITING = ("atomic", "store", "scatter", "asm", "copy")
"""Parts of the names of all functions that may write."""
_METHODS = frozenset(name for name in dir(tl.core.tensor) if not any(part in name for part in _WRITING)) | {"load", "gather"}
"""Of values in a kernel; none of these writes."""
_NO_VALUES, _STORE = "block of zeros", "store of zeros"
"""Names that no source could hold."""
_COMPOUND = (ast.If, ast.For, ast.While)
_DEPTH = 8


class Unclear(Exception):
    """Where a kernel stores cannot be told apart from what it computes."""


def stores_of(function: Callable[..., Any], bound: Mapping[str, Any]) -> Callable[..., Any] | None:
    """The function that computes where a kernel stores, in its place; ``bound``: its arguments, of which some may be jitted functions.
    None where it cannot be told."""
    plain = {name: getattr(value, "value", value) for name, value in bound.items()}
    given = {name: value for name, value in plain.items() if isinstance(value, JITFunction)}
    key = function, tuple(sorted((name, id(value)) for name, value in given.items()))
    if key not in _made:
        try:
            _made[key] = _AddressRewriter(function, given, 0).rewrite_ast()
        except Unclear:
            _made[key] = None
    return _made[key]


_made: dict[Any, Callable[..., Any] | None] = {}


class _AddressRewriter(ti.FunctionRewriter):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], given: Mapping[str, Any], depth: int) -> None:
        super().__init__(function)
        self.given, self.depth = given, depth
        self.more: dict[str, Any] = {_NO_VALUES: _zeros, _STORE: _store}
        """Values that the function needs beside its globals."""
        self.helpers: dict[str, _AddressRewriter] = {}
        self.needed: set[str] = set()

    def _transform_ast(self, text: str) -> ast.Module:
        parsed = syntax_tree(text)
        function = parsed.body[0]
        assert isinstance(function, ast.FunctionDef)
        kept = _KeptStatements(function, self)
        function.body = kept.body()
        self.needed = kept.needed
        tree: ast.Module = self.ast_transformer.visit(parsed)
        ast.fix_missing_locations(tree)
        ast.increment_lineno(tree, self.def_file_lineno - 1)
        return tree


def _zeros(descriptor: Any) -> Any:
    return tl.zeros(descriptor.block_shape, descriptor.dtype)


def _store(pointer: Any, value: Any, *rest: Any, **named: Any) -> Any:
    """A store of zeros of the pointer's type."""
    kind = pointer.dtype.element_ty
    return tl.store(pointer, tl.full((), 0, kind.element_ty if kind.is_block() else kind), *rest, **named)


@dataclass
class _KeptStatements:
    """Of a kernel or a helper, the statements on which the places of its stores depend."""

    function: ast.FunctionDef
    rewriter: _AddressRewriter
    needed: set[str] = field(default_factory=set)
    """Names on which they depend. Where they are bound plays no part: all that binds them is kept."""

    def __post_init__(self) -> None:
        cells = zip(self.rewriter.fn.__code__.co_freevars, self.rewriter.fn.__closure__ or (), strict=True)
        self._names = {**self.rewriter.fn.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        arguments = self.function.args
        self._own = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        for node in ast.walk(self.function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._own.add(node.id)
            if isinstance(node, ast.NamedExpr | ast.Lambda | ast.Try | ast.With | ast.Starred) or (
                isinstance(node, ast.FunctionDef) and node is not self.function
            ):
                raise Unclear(type(node).__name__)
        self._own -= self.rewriter.given.keys()
        self._effects: dict[int, bool] = {}

    def body(self) -> list[ast.stmt]:
        """The statements that are left."""
        before = -1
        while len(self.needed) > before:
            before = len(self.needed)
            left = list(self._left(self.function.body))
        return left or [ast.Pass()]

    def _left(self, body: list[ast.stmt], *, in_loop: bool = False) -> Iterator[ast.stmt]:
        """Copies of what is kept of these statements; the names that it uses become needed."""
        for statement in body:
            if isinstance(statement, ast.Break | ast.Continue):
                yield statement
            elif not (self._matters(statement) or (in_loop and isinstance(statement, ast.If) and _leaves(statement))):
                continue
            elif isinstance(statement, _COMPOUND):
                yield self._compound(statement, in_loop)
            else:
                yield self._simple(statement)

    def _compound(self, statement: ast.If | ast.For | ast.While, in_loop: bool) -> ast.stmt:
        in_loop = in_loop or not isinstance(statement, ast.If)
        body = list(self._left(statement.body, in_loop=in_loop)) or [ast.copy_location(ast.Pass(), statement)]
        orelse = list(self._left(statement.orelse, in_loop=in_loop))
        if isinstance(statement, ast.For):
            self._uses(statement.iter)
            return ast.copy_location(ast.For(statement.target, statement.iter, body, orelse), statement)
        self._uses(statement.test)
        return ast.copy_location(type(statement)(statement.test, body, orelse), statement)

    def _simple(self, statement: ast.stmt) -> ast.stmt:
        if isinstance(statement, ast.Return):
            if self.rewriter.depth or statement.value is None:  # of a helper that writes, nobody uses what it returns
                return ast.copy_location(ast.Return(None), statement)
            self._uses(statement)
            return statement
        value = getattr(statement, "value", None)
        if value is None or not self._writes(value):
            self._uses(statement)
            return statement
        if _bound(statement) & self.needed or isinstance(statement, ast.AugAssign) or not isinstance(value, ast.Call):
            raise Unclear("what an atomic operation gives")
        return ast.copy_location(ast.Expr(self._call(value)), statement)

    def _matters(self, statement: ast.stmt) -> bool:
        if isinstance(statement, _COMPOUND):
            of_loop = _bound(statement.target) if isinstance(statement, ast.For) else set()
            head = statement.iter if isinstance(statement, ast.For) else statement.test
            if of_loop & self.needed or self._writes(head):
                return True
            return any(self._matters(inner) for inner in (*statement.body, *statement.orelse))
        if isinstance(statement, ast.Assert | ast.Pass | ast.Break | ast.Continue):
            return False
        if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return):
            raise Unclear(type(statement).__name__)
        return isinstance(statement, ast.Return) or bool(_bound(statement) & self.needed) or self._writes(statement)

    def _uses(self, node: ast.AST) -> None:
        if self._writes(node):
            raise Unclear("what an atomic operation gives")
        self.needed |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} & self._own

    def _call(self, call: ast.Call) -> ast.Call:
        """A call that writes, with what it writes left out."""
        kind = self._kind(call)
        inner = [*call.args, *(k.value for k in call.keywords)]
        if any(self._writes(argument) for argument in inner):
            raise Unclear("an atomic operation within a store")
        if isinstance(kind, JITFunction):
            return self._of_helper(call, kind)
        if kind == "descriptor":
            if len(call.args) != 2 or not isinstance(call.func, ast.Attribute):
                raise Unclear("a descriptor's store")
            self._uses(call.args[0])
            self._uses(call.func)
            return _replaced(call, {1: ast.Call(ast.Name(_NO_VALUES, ast.Load()), [call.func.value], [])}, "")
        if kind not in _VALUES:
            raise Unclear(str(kind))
        changed = _replaced(call, {1: ast.Constant(0)}, _VALUES[kind])
        for argument in (*changed.args, *(k.value for k in changed.keywords)):
            self._uses(argument)
        changed.func = ast.copy_location(ast.Name(_STORE, ast.Load()), call.func) if kind == "store" else call.func
        return changed

    def _of_helper(self, call: ast.Call, helper: Any) -> ast.Call:
        name = f"stores of helper {id(helper)}"
        if name not in self.rewriter.more:
            own = _AddressRewriter(helper.fn, {}, self.rewriter.depth + 1)
            self.rewriter.more[name] = own.rewrite_ast()
            self.rewriter.helpers[name] = own
        own = self.rewriter.helpers[name]
        for position, argument in enumerate(call.args):
            if position >= len(helper.arg_names) or helper.arg_names[position] in own.needed:
                self._uses(argument)
        unused = {n: k for n, k in enumerate(helper.arg_names) if k not in own.needed}
        for keyword in call.keywords:
            if keyword.arg not in unused.values():
                self._uses(keyword.value)
        places = {n: ast.Constant(0) for n in unused if n < len(call.args)}
        changed = _replaced(call, places, *unused.values())
        changed.func = ast.copy_location(ast.Name(name, ast.Load()), call.func)
        return changed

    def _writes(self, node: ast.AST) -> bool:
        """Whether anything within a statement or expression may write."""
        if id(node) not in self._effects:
            calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
            self._effects[id(node)] = any(self._kind(call) is not None for call in calls)
        return self._effects[id(node)]

    def _kind(self, call: ast.Call) -> Any:
        """What a call writes by: a function's name, ``descriptor``, or a helper; None where it writes nothing. Raises Unclear."""
        found = self._value(call.func)
        if found is None:
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if method not in {*_METHODS, "store"} and not method.startswith("is_"):
                raise Unclear(ast.unparse(call.func))
            return "descriptor" if method == "store" else None
        if isinstance(found, JITFunction) and not str(found.fn.__module__).startswith("triton."):
            return found if _helper_writes(found, self.rewriter.depth + 1) else None
        names = (_name_of(found), getattr(found, "__name__", ""), getattr(call.func, "attr", ""))
        return next((name for name in names if any(part in name for part in _WRITING)), None)

    def _value(self, node: ast.expr) -> Any:
        """What an expression names outside of the kernel; None where it is a value of the kernel."""
        if isinstance(node, ast.Name) and node.id not in self._own:
            builtin = __builtins__.get(node.id) if isinstance(__builtins__, dict) else getattr(__builtins__, node.id, None)
            return self.rewriter.given.get(node.id, self._names.get(node.id, builtin))
        if isinstance(node, ast.Attribute):
            return getattr(self._value(node.value), node.attr, None)
        return None


def _name_of(function: Any) -> str:
    """What the language calls a function that may write, whose own name the interpreter's replacements have lost."""
    writing = (name for name in dir(tl) if any(part in name for part in _WRITING))
    return next((name for name in writing if getattr(tl, name) is function), "")


def _helper_writes(helper: Any, depth: int) -> bool:
    """Raises Unclear where it cannot be told."""
    if depth > _DEPTH:
        raise Unclear("helpers within helpers")
    rewriter = _AddressRewriter(helper.fn, {}, depth)
    function = syntax_tree(_text(helper.fn)).body[0]
    assert isinstance(function, ast.FunctionDef)
    return _KeptStatements(function, rewriter)._writes(ast.Module(function.body, []))


def _text(function: Callable[..., Any]) -> str:
    rewriter = ti.FunctionRewriter(function)
    lines, _ = source_lines(function)
    rewriter.def_lineno = rewriter._find_def(lines)
    text: str = rewriter._prepare_source(lines)
    return text


def _replaced(call: ast.Call, places: Mapping[int, ast.expr], *names: str) -> ast.Call:
    """A copy of a call with other arguments at these places, and zeros for these names."""
    arguments = [ast.copy_location(places.get(n, old), old) for n, old in enumerate(call.args)]
    keywords = [ast.keyword(k.arg, ast.copy_location(ast.Constant(0), k.value)) if k.arg in names else k for k in call.keywords]
    return ast.copy_location(ast.Call(call.func, arguments, keywords), call)


def _bound(node: ast.AST) -> set[str]:
    """Names that a statement binds, or whose parts it changes."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node if isinstance(node, ast.expr) else None)]
    return {inner.id for target in targets if target is not None for inner in ast.walk(target) if isinstance(inner, ast.Name)}


def _leaves(statement: ast.If) -> bool:
    """Whether a branch leaves the loop around it, or goes on with it."""
    return any(isinstance(inner, ast.Break | ast.Continue) for inner in ast.walk(statement))
