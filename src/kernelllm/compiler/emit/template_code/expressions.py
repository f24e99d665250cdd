"""Expressions of templates, evaluated on what is known of their parts."""

from __future__ import annotations

import ast
import operator
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton.language as tl

from kernelllm.compiler.emit.template_code import abstract
from kernelllm.compiler.emit.template_code.abstract import UNKNOWN, AbstractTensor, Const, Sequence, Value, apply, const, join, known

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b, ast.Not: operator.not_, ast.USub: operator.neg,
    ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip


def namespace_value(text: str) -> Value | None:
    """``torch.float32`` and ``tl.float32``, which are constants."""
    owner, _, name = text.rpartition(".")
    found = getattr({"torch": torch, "tl": tl}.get(owner), name, None)
    return Const((found,)) if isinstance(found, torch.dtype | tl.dtype) else None


class Expressions:
    """Evaluates expressions. What it sees of each, whatever the call, is kept by the expression's identity."""

    functions: Mapping[str, ast.FunctionDef]

    def __init__(self) -> None:
        self.seen: dict[int, Value] = {}
        self.handed_on: set[str] = set()
        """Functions that are passed on as values: any arguments may come."""
        self._texts: dict[int, str] = {}
        self._constants: dict[int, Value] = {}
        self._kinds: dict[type[ast.expr], Callable[[Any, dict[str, Value]], Value]] = {
            ast.Constant: self._constant, ast.Name: self._name, ast.Tuple: self._sequence, ast.List: self._sequence,
            ast.Starred: self._starred, ast.BinOp: self._binary, ast.UnaryOp: self._unary, ast.Compare: self._compare,
            ast.BoolOp: self._bool, ast.IfExp: self._chosen, ast.Call: self._call, ast.Attribute: self._attribute,
            ast.Subscript: self._subscript, ast.ListComp: self._comprehension, ast.GeneratorExp: self._comprehension,
            ast.Lambda: self._lambda,
        }  # fmt: skip

    @abstractmethod
    def run(self, name: str, given: Mapping[str, Value]) -> Value:
        """What a function returns for these arguments."""

    @abstractmethod
    def _call(self, node: ast.Call, env: dict[str, Value]) -> Value: ...

    @abstractmethod
    def _bind(self, target: ast.expr, value: Value, env: dict[str, Value]) -> None: ...

    def _text(self, node: ast.expr) -> str:
        """The expression as Python, written once: functions are run many times."""
        if id(node) not in self._texts:
            self._texts[id(node)] = ast.unparse(node)
        return self._texts[id(node)]

    def eval(self, node: ast.expr, env: dict[str, Value]) -> Value:
        """The values that an expression may have."""
        evaluate = self._kinds.get(type(node))
        value = UNKNOWN if evaluate is None else evaluate(node, env)
        before = self.seen.get(id(node))
        if before is not value:
            self.seen[id(node)] = join(before, value)
        return value

    def _constant(self, node: ast.Constant, env: dict[str, Value]) -> Value:
        if id(node) not in self._constants:
            self._constants[id(node)] = const(node.value)
        return self._constants[id(node)]

    def _name(self, node: ast.Name, env: dict[str, Value]) -> Value:
        if node.id in self.functions and node.id not in env and node.id not in self.handed_on:
            self.handed_on.add(node.id)
            self.run(node.id, dict.fromkeys((a.arg for a in self.functions[node.id].args.args), UNKNOWN))
        return env.get(node.id, UNKNOWN)

    def _starred(self, node: ast.Starred, env: dict[str, Value]) -> Value:
        return self.eval(node.value, env)

    def _unary(self, node: ast.UnaryOp, env: dict[str, Value]) -> Value:
        return apply(OPERATORS[type(node.op)], self.eval(node.operand, env))

    def _chosen(self, node: ast.IfExp, env: dict[str, Value]) -> Value:
        test = truth_of(self.eval(node.test, env))
        if test is not None:
            return self.eval(node.body if test else node.orelse, env)
        a, b = self.eval(node.body, env), self.eval(node.orelse, env)
        return join(a, b)

    def _lambda(self, node: ast.Lambda, env: dict[str, Value]) -> Value:
        self.eval(node.body, env | dict.fromkeys((a.arg for a in node.args.args), UNKNOWN))
        return UNKNOWN

    def _sequence(self, node: ast.Tuple | ast.List, env: dict[str, Value]) -> Value:
        items: list[Value] = []
        values = [self.eval(element, env) for element in node.elts]
        for element, value in zip(node.elts, values, strict=True):
            if not isinstance(element, ast.Starred):
                items.append(value)
            elif isinstance(value, Sequence):
                items += value.items
            else:
                return UNKNOWN
        return Sequence(tuple(items), isinstance(node, ast.List))

    def _binary(self, node: ast.BinOp, env: dict[str, Value]) -> Value:
        a, b = self.eval(node.left, env), self.eval(node.right, env)
        match node.op, a, b:
            case ast.Add(), Sequence(), Sequence():
                return Sequence((*a.items, *b.items), a.is_list)
            case ast.Mult(), Sequence(), Const() if b.single:
                return Sequence(a.items * b.hint, a.is_list)
            case (ast.Mult(), Const(options=(0,)), _) | (ast.Mult(), _, Const(options=(0,))):
                zero = a if isinstance(a, Const) and a.options == (0,) else b
                return zero if isinstance(zero, Const) and isinstance(zero.hint, int) else UNKNOWN
            case (ast.Mod(), _, Const(options=(1,))):
                return const(0)
            case (ast.BitAnd(), Const(options=(False,)), _) | (ast.BitAnd(), _, Const(options=(False,))):
                return const(False)
        return apply(OPERATORS[type(node.op)], a, b)

    def _compare(self, node: ast.Compare, env: dict[str, Value]) -> Value:
        values = [self.eval(v, env) for v in (node.left, *node.comparators)]
        if len(values) != 2:
            return UNKNOWN
        none = [known(v) == (True, None) for v in values]
        if isinstance(node.ops[0], ast.Is | ast.IsNot) and any(none) and any(isinstance(v, AbstractTensor | Sequence) for v in values):
            return const(isinstance(node.ops[0], ast.IsNot))
        return apply(OPERATORS[type(node.ops[0])], *values)

    def _bool(self, node: ast.BoolOp, env: dict[str, Value]) -> Value:
        stop = isinstance(node.op, ast.Or)
        open_: list[Value] = []
        for part in node.values:
            value = self.eval(part, env)
            truth = truth_of(value)
            if truth is stop:
                return value
            if truth is None:
                open_.append(value)
        return value if not open_ or (len(open_) == 1 and open_[0] is value) else UNKNOWN

    def _attribute(self, node: ast.Attribute, env: dict[str, Value]) -> Value:
        constant = namespace_value(text) if (text := self._text(node)).startswith(("torch.", "tl.")) else None
        if constant is not None:
            return constant
        owner = self.eval(node.value, env)
        if isinstance(owner, AbstractTensor):
            return Sequence(owner.shape) if node.attr == "shape" else owner.dtype if node.attr == "dtype" else UNKNOWN
        if isinstance(owner, Const) and node.attr == "itemsize":
            return apply(lambda d: d.itemsize, owner)
        return UNKNOWN

    def _subscript(self, node: ast.Subscript, env: dict[str, Value]) -> Value:
        owner = self.eval(node.value, env)
        if isinstance(owner, Const) and owner.single and isinstance(owner.hint, int):
            return owner  # ``number[:, None]``: a number fits every shape
        if isinstance(owner, Sequence):
            part = self._index(node.slice, env)
            if isinstance(part, slice):
                return UNKNOWN if ... in (part.start, part.stop, part.step) else Sequence(owner.items[part], owner.is_list)
            found, index = known(part) if part is not None else (False, None)
            return owner.items[index] if found and isinstance(index, int) and -len(owner.items) <= index < len(owner.items) else UNKNOWN
        parts = [self._index(e, env) for e in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])]
        if isinstance(owner, AbstractTensor):
            return abstract.view(owner, parts)
        return UNKNOWN

    def _index(self, node: ast.expr, env: dict[str, Value]) -> Any:
        if not isinstance(node, ast.Slice):
            value = self.eval(node, env)
            return None if known(value) == (True, None) else value
        bounds = [known(self.eval(b, env)) if b is not None else (True, None) for b in (node.lower, node.upper, node.step)]
        return slice(*(value if found else ... for found, value in bounds))

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp, env: dict[str, Value]) -> Value:
        if len(node.generators) != 1 or node.generators[0].ifs:
            return UNKNOWN
        generator = node.generators[0]
        rows = self.eval(generator.iter, env)
        inner = dict(env)
        if not isinstance(rows, Sequence):
            self._bind(generator.target, UNKNOWN, inner)
            self.eval(node.elt, inner)
            return UNKNOWN
        items = []
        for row in rows.items:
            self._bind(generator.target, row, inner)
            items.append(self.eval(node.elt, inner))
        return Sequence(tuple(items), True)


def truth_of(value: Value) -> bool | None:
    """Whether a value counts as true, None where it may be either."""
    if isinstance(value, Const):
        answers = {bool(o) for o in value.options}
        return answers.pop() if len(answers) == 1 else None
    return bool(value.items) if isinstance(value, Sequence) else None


def in_namespace(text: str) -> bool:
    """Whether it is a function of a module, such as ``torch.empty``, and no method."""
    return text.split(".")[0] in ("torch", "tl", "triton", "math", "libdevice")
