"""Templates are specialised for one file: constant arguments are substituted, and dead branches are removed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton.language as tl

from kernelllm.compiler.emit import formatting
from kernelllm.compiler.emit.ast_tools import Replace, copy_of, reads
from kernelllm.compiler.emit.template_code.abstract import Const, Sequence, Value, known
from kernelllm.compiler.emit.template_code.comments import shorter_docstring, with_comments
from kernelllm.compiler.emit.template_code.expressions import truth_of
from kernelllm.compiler.emit.template_code.inlining import inlined, remove_dead_code
from kernelllm.compiler.emit.template_code.interpret import KEPT, Interpreter
from kernelllm.compiler.emit.template_code.temporaries import joined
from kernelllm.core.text import syntax_tree

_ROUNDS = 8
_SIMPLEST = ("row_should_fit",)
"""Questions of which way is the fastest to which "yes" is the shortest answer."""
_EMPTY = (Sequence(()), Sequence((), True))


@dataclass
class Call:
    """A call of a host function, as far as its arguments are known."""

    name: str
    args: list[Value]
    keywords: dict[str, Value] = field(default_factory=dict)


@dataclass
class Specialised:
    """The templates of one file."""

    texts: list[str]
    gone: dict[str, set[str]]
    """Host functions to their arguments that are no more."""
    params: dict[str, list[str]]
    """Host functions to all arguments that they had."""

    def rewritten(self, line: str) -> str:
        """A statement of the forward with the calls as the functions now are."""
        if not any(f"{name}(" in line for name in self.gone):
            return line
        indent = line[: len(line) - len(line.lstrip())]
        tree = syntax_tree(line.strip())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.gone:
                gone, params = self.gone[node.func.id], self.params[node.func.id]
                node.args = [a for a, p in zip(node.args, params, strict=False) if p not in gone]
                node.keywords = [k for k in node.keywords if k.arg not in gone]
        return indent + formatting.quoted(ast.unparse(tree))


def specialised(texts: Mapping[str, str], calls: list[Call], *, short: bool = False) -> Specialised:
    """The definitions by name, in order, as these calls of host functions need them. ``short``: in one way for all sizes, undocumented."""
    functions: dict[str, ast.FunctionDef] = {}
    for name, text in texts.items():
        node = with_comments(text)
        assert isinstance(node, ast.FunctionDef)
        if short and re.search("_should_|_cores$", name):  # which way is the fastest
            node.body = syntax_tree(f"return {int(name in _SIMPLEST)}").body
        functions[name] = node
    params = {name: [a.arg for a in f.args.args] for name, f in functions.items()}
    gone: dict[str, set[str]] = {name: set() for name in functions}
    roots = {c.name for c in calls}
    for _ in range(_ROUNDS):
        before = [ast.unparse(f) for f in functions.values()]
        interpreter = _interpreted(functions, calls, gone, params)
        _Folder(interpreter, functions).fold()
        for function in functions.values():
            remove_dead_code(function, functions)
        for name, function in functions.items():
            gone[name] = set(params[name]) - {a.arg for a in function.args.args}
        functions = inlined(functions, roots)
        if [ast.unparse(f) for f in functions.values()] == before:
            break
    for name, function in functions.items():
        joined(function)
        if short and ast.get_docstring(function) is not None and len(function.body) > 1:
            del function.body[0]
            continue
        shorter_docstring(function, set(params[name]) - {a.arg for a in function.args.args})
    return Specialised([formatting.text([f]) for f in functions.values()], {n: gone[n] for n in roots}, params)


def _interpreted(
    functions: dict[str, ast.FunctionDef], calls: list[Call], gone: dict[str, set[str]], params: dict[str, list[str]]
) -> Interpreter:  # fmt: skip
    unstable: set[int] = set()
    own_sizes: dict[tuple[str, str], set[Any]] = {}
    while True:
        before = len(unstable) + sum(map(len, own_sizes.values()))
        interpreter = Interpreter(functions, unstable, own_sizes)
        for call in calls:
            given = dict(zip(params[call.name], call.args, strict=False)) | call.keywords
            interpreter.run(call.name, {k: v for k, v in given.items() if k not in gone[call.name]})
        if len(unstable) + sum(map(len, own_sizes.values())) == before:
            return interpreter


def literal(value: Any) -> ast.expr | None:
    """A constant as an expression, None for one that cannot be written."""
    if isinstance(value, torch.dtype):
        return syntax_tree(str(value), mode="eval").body
    if isinstance(value, tl.dtype):
        name = next((n for n, v in vars(tl).items() if v is value), None)
        return syntax_tree(f"tl.{name}", mode="eval").body if name else None
    if isinstance(value, tuple | list):
        items = [literal(v) for v in value]
        if any(i is None for i in items):
            return None
        return ast.List(items, ast.Load()) if isinstance(value, list) else ast.Tuple(items, ast.Load())  # type: ignore[arg-type]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return ast.Constant(value) if value is None or isinstance(value, bool | int | float | str) else None


class _Folder(ast.NodeTransformer):
    """Puts constants in, takes away what is never reached, and drops arguments that are constant for every call."""

    def __init__(self, interpreter: Interpreter, functions: dict[str, ast.FunctionDef]) -> None:
        self.seen, self.reached, self.bindings = interpreter.seen, interpreter.reached, interpreter.bindings
        self.functions = functions
        self.dropped: dict[str, set[str]] = {}
        open_calls = {
            _callee(n) for f in functions.values() for n in ast.walk(f)
            if isinstance(n, ast.Call) and id(n) in self.bindings and self.bindings[id(n)] is None
        } | interpreter.handed_on  # fmt: skip
        for name, values in interpreter.params.items():
            assigned = {n.id for n in ast.walk(functions[name]) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            used = reads(ast.Module(functions[name].body, []))
            idle = {p for p, v in values.items() if (self._constant(v) is not None or not used[p]) and p not in assigned}
            idle |= {p for p in values.keys() & assigned if _replaced_first(functions[name].body, p)}
            self.dropped[name] = set() if name in open_calls else idle

    def fold(self) -> None:
        """Fold every function, in place."""
        self._reached_functions = {n for n, f in self.functions.items() if any(id(s) in self.reached for s in f.body)}
        for name, function in list(self.functions.items()):
            if name not in self._reached_functions:
                del self.functions[name]
                continue
            function.body = self._block(function.body)
            drop_parameters(function, self.dropped.get(name, set()))

    @staticmethod
    def _constant(value: Value | None) -> ast.expr | None:
        if isinstance(value, Const) and value.single:
            return literal(value.hint)
        return None

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        kept: list[ast.stmt] = []
        for statement in body:
            if id(statement) not in self.reached:
                continue
            kept += self._statement(statement)
        return kept

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.If):
            test = self.seen.get(id(node.test))
            truth = truth_of(test) if test is not None else None
            if truth is not None:
                return self._block(node.body if truth else node.orelse)
            node.test = self.visit(node.test)
            node.body, node.orelse = self._block(node.body), self._block(node.orelse)
            return [node] if node.body else []
        if isinstance(node, ast.For):
            items = self.seen.get(id(node.iter))
            if isinstance(items, Sequence) and len(items.items) <= 1:
                if not items.items:
                    return []
                first = self._constant(items.items[0])
                if first is not None:
                    return [ast.copy_location(ast.Assign([node.target], first), node), *self._block(node.body)]
            node.iter = self.visit(node.iter)
            node.body = self._block(node.body)
            return [node] if node.body else []
        if isinstance(node, ast.While):
            if known(self.seen.get(id(node.test), Const(()))) == (True, False):
                return []
            node.test = self.visit(node.test)
            node.body = self._block(node.body) or [ast.Pass()]
            return [node]
        changed = self.visit(node)
        if isinstance(changed, ast.AugAssign) and isinstance(changed.value, ast.Constant):
            idle = 1 if isinstance(changed.op, ast.Mult | ast.FloorDiv) else 0 if isinstance(changed.op, ast.Add | ast.Sub) else None
            if idle is not None and _is(changed.value.value, idle):
                return []
        return _split(changed)

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", None), ast.Load | None) and not isinstance(node, ast.Constant):
            constant = self._constant(self.seen.get(id(node)))
            follows = isinstance(node, ast.Attribute) and node.attr == "dtype"  # ``x.dtype`` says more than the type itself
            follows |= not any(isinstance(n, ast.Name | ast.Call) for n in ast.walk(node))  # such as 2**23
            if constant is not None and not follows and not isinstance(node, ast.Starred | ast.Lambda):
                return constant
            if isinstance(node, ast.Call | ast.ListComp | ast.GeneratorExp):
                plain, value = known(self.seen.get(id(node), Const(())))
                made = literal(value) if plain and isinstance(self.seen[id(node)], Sequence) else None
                if made is not None and len(value) <= 8 and not ast.unparse(node).startswith(("range(", "tl.static_range(")):
                    return made
        return super().visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        seen = self.seen.get(id(node.test))
        truth = truth_of(seen) if seen is not None else None
        if truth is not None:
            return self.visit(node.body if truth else node.orelse)
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        idle = isinstance(node.op, ast.And)
        parts = [p for p in node.values if known(self.seen.get(id(p), Const(()))) != (True, idle)]
        parts = [self.visit(p) for p in parts]
        if not parts:
            return ast.Constant(idle)
        return parts[0] if len(parts) == 1 else ast.BoolOp(node.op, parts)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        a = left.value if isinstance(left, ast.Constant) else ...
        b = right.value if isinstance(right, ast.Constant) else ...
        match node.op:
            case ast.Mult() if _is(a, 1):
                return right
            case ast.Mult() | ast.FloorDiv() if _is(b, 1):
                return left
            case ast.Add() if _is(a, 0):
                return right
            case ast.Add() | ast.Sub() if _is(b, 0):
                return left
            case ast.Add() if isinstance(b, int | float) and not isinstance(b, bool) and b < 0:
                return ast.copy_location(ast.BinOp(left, ast.Sub(), ast.Constant(-b)), node)
            case ast.BitOr() if a is True or b is True:
                return ast.Constant(True)
            case ast.BitAnd() if a is True:
                return right
            case ast.BitAnd() if b is True:
                return left
        return ast.copy_location(ast.BinOp(left, node.op, right), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        whole, part = self.seen.get(id(node.value)), self.seen.get(id(node))
        if isinstance(node.slice, ast.Slice) and isinstance(whole, Sequence) and whole == part and isinstance(node.ctx, ast.Load):
            return self.visit(node.value)
        node = self.generic_visit(node)  # type: ignore[assignment]
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, int) and isinstance(node.ctx, ast.Load):
            return node.value
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        if parts and isinstance(node.ctx, ast.Load) and all(ast.unparse(p) in (":", "0::1") for p in parts):
            return node.value
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        name = _callee(node)
        binding = self.bindings.get(id(node))
        dropped = self.dropped.get(name, set()) if name in self.functions else set()
        if name in self.functions and binding is not None:
            named = self._named(node, binding, dropped)
            dropped = dropped | {p for p, _ in named} if isinstance(node.func, ast.Subscript) else dropped
            node.args = self._arguments(node, binding, dropped)
            if isinstance(node.func, ast.Subscript):
                node.keywords = [*(ast.keyword(p, value) for p, value in named), *node.keywords]
                dropped = dropped - {p for p, _ in named}
            node.keywords = [k for k in node.keywords if k.arg not in dropped]
            for keyword in node.keywords:
                keyword.value = self.visit(keyword.value)
            if isinstance(node.func, ast.Subscript):
                node.func.slice = self.visit(node.func.slice)
            return node
        node = self.generic_visit(node)  # type: ignore[assignment]
        flat: list[ast.expr] = []
        for argument in node.args:
            inner = argument.value if isinstance(argument, ast.Starred) else None
            flat += inner.elts if isinstance(inner, ast.Tuple | ast.List) else [argument]
        node.args = flat
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and isinstance(node.func.value, ast.Constant):
            return node.func.value
        return node

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        """Drop a starred sequence that is empty."""
        node.elts = [e for e in node.elts if not (isinstance(e, ast.Starred) and self.seen.get(id(e.value)) in _EMPTY)]
        return self.generic_visit(node)

    @staticmethod
    def _named(node: ast.Call, binding: list[tuple[int, int | None, str]], dropped: set[str]) -> list[tuple[str, ast.expr]]:
        """The arguments from the first tile on, which are passed by name."""
        first = next((i for i, (_, place, p) in enumerate(binding) if p.startswith(KEPT) and place is None), len(binding))
        if any(place is not None for _, place, _ in binding[first:]):
            return []
        return [(p, node.args[i]) for i, _, p in binding[first:] if p not in dropped]

    def _arguments(self, node: ast.Call, binding: list[tuple[int, int | None, str]], dropped: set[str]) -> list[ast.expr]:
        kept: list[ast.expr] = []
        for i, argument in enumerate(node.args):
            places = [(place, param) for at, place, param in binding if at == i]
            left = [place for place, param in places if param not in dropped]
            if not isinstance(argument, ast.Starred):
                kept += [self.visit(argument)] if left else []
            elif len(left) == len(places):
                value = self.visit(argument.value)
                kept += value.elts if isinstance(value, ast.Tuple | ast.List) else [ast.Starred(value, ast.Load())]
            else:
                value = self.visit(argument.value)
                kept += [item_of(self._plainer(value), place) for place in left if place is not None]
        return kept


    def _plainer(self, value: ast.expr) -> ast.expr:
        """What a call of a function that is one expression stands for."""
        function = self.functions.get(_callee(value)) if isinstance(value, ast.Call) else None
        body = [s for s in function.body if not isinstance(s, ast.Expr)] if function is not None else []
        match body, value:
            case [ast.Return(value=ast.Tuple() as result)], ast.Call(args=args) if all(isinstance(a, ast.Name) for a in args):
                names = {p.arg: a for p, a in zip(function.args.args, args, strict=True)}  # type: ignore[union-attr]
                return Replace(names).visit(copy_of(result))  # type: ignore[no-any-return]
        return value


def _replaced_first(body: list[ast.stmt], name: str) -> bool:
    """Whether the first statement that mentions a name gives it a value that does not follow from its own."""
    first = next((s for s in body if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(s))), None)
    return isinstance(first, ast.Assign) and not reads(first)[name]


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == number


def _callee(node: ast.Call) -> str:
    target = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    return target.id if isinstance(target, ast.Name) else ""


def item_of(value: ast.expr, place: int) -> ast.expr:
    """One item of a sequence: ``x.stride(1)`` of ``x.stride()``, ``x.shape[3]`` of ``x.shape[2:]``, ``finish[1]``."""
    match value:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if not any(isinstance(e, ast.Starred) for e in elements):
            return elements[place]
        case ast.Call(func=ast.Attribute(attr="stride" | "size") as func, args=[]):
            return ast.Call(func, [ast.Constant(place)], [])
        case ast.Subscript(value=inner, slice=ast.Slice(lower=None | ast.Constant() as lower, step=None)):
            start = int(str(lower.value)) if lower is not None else 0
            return ast.Subscript(inner, ast.Constant(start + place), ast.Load())
    return ast.Subscript(value, ast.Constant(place), ast.Load())


def _split(node: ast.stmt | None) -> list[ast.stmt]:
    """``a, b = x, y`` as two statements, where the second does not read what the first writes."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if (
            len(targets) == len(values) and all(isinstance(t, ast.Name) for t in targets)
        ):
            names = {t.id for t in targets if isinstance(t, ast.Name)}
            if any(isinstance(v, ast.Constant) for v in values) and not any(reads(v).keys() & names for v in values):
                made: list[ast.stmt] = [ast.copy_location(ast.Assign([t], v), node) for t, v in zip(targets, values, strict=True)]
                made[0].comments = getattr(node, "comments", [])  # type: ignore[attr-defined]
                return made
    return [] if node is None else [node]


def drop_parameters(function: ast.FunctionDef, dropped: Iterable[str]) -> None:
    """Take arguments out of a signature."""
    gone = set(dropped)
    arguments = function.args
    first = len(arguments.args) - len(arguments.defaults)
    kept = [(a, arguments.defaults[i - first] if i >= first else None) for i, a in enumerate(arguments.args) if a.arg not in gone]
    arguments.args = [a for a, _ in kept]
    arguments.defaults = [d for _, d in kept if d is not None]
    for i, decorator in enumerate(function.decorator_list):
        match decorator:
            case ast.Call(func=plain, keywords=[ast.keyword(arg="do_not_specialize", value=ast.List() as names)]):
                names.elts = [e for e in names.elts if not (isinstance(e, ast.Constant) and e.value in gone)]
                function.decorator_list[i] = decorator if names.elts else plain
