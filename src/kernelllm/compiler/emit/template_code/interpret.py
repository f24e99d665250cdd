"""Templates run on what is known of their arguments, to see which expressions are constant in a file and which branches it takes."""

from __future__ import annotations

import ast
import importlib
import math
import operator
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
import triton

from kernelllm.compiler.emit.template_code import abstract
from kernelllm.compiler.emit.template_code.abstract import (
    UNKNOWN,
    AbstractTensor,
    Const,
    Sequence,
    Unknown,
    Value,
    apply,
    const,
    join,
    known,
)
from kernelllm.compiler.emit.template_code.expressions import OPERATORS, Expressions, in_namespace, truth_of
from kernelllm.core.text import syntax_tree

KEPT = ("BLOCK",)
"""Tiles stay arguments of kernels, so that they have a name there."""
LONGEST = 16
"""A loop over at most this many known items is followed item by item."""
DEEPEST = 4
HELD = "width"
"""The argument of tiles that says how much a program holds: where it varies, so must they, or they do not fit into shared memory."""

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "int": int, "float": float, "bool": bool, "min": min, "max": max, "abs": abs, "sum": sum, "pow": pow, "list": list,
    "tuple": tuple, "any": any, "all": all, "triton.cdiv": triton.cdiv, "triton.next_power_of_2": triton.next_power_of_2,
    "tl.cdiv": triton.cdiv, "tl.minimum": min, "tl.maximum": max, "torch.promote_types": torch.promote_types,
    "range": lambda *a: _few(range(*a)), "tl.static_range": lambda *a: _few(range(*a)),
    **{f"math.{n}": getattr(math, n) for n in ("prod", "gcd", "sqrt", "ceil", "log2")},
}  # fmt: skip
_NEW = ("torch.empty", "torch.zeros", "torch.ones")


def _few(items: range) -> list[int]:
    if len(items) > LONGEST:
        raise ValueError("too many to follow")
    return list(items)


def decides_speed(name: str) -> bool:
    """Whether a function of the templates decides what is fast and not what is right: it is asked when the file is written."""
    return name.endswith("_tiles") or "_should_" in name or "_needs_" in name


@cache
def _function(name: str) -> Callable[..., Any]:
    folder = Path(__file__).resolve().parents[2] / "templates"
    for path in sorted(folder.glob("*.py")):
        found = getattr(importlib.import_module(f"kernelllm.compiler.templates.{path.stem}"), name, None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    raise KeyError(name)


class Interpreter(Expressions):
    """Runs functions of the templates. What it sees of each expression, whatever the call, is kept by the expression's identity."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef], unstable: set[int], own_sizes: dict[tuple[str, str], set[Any]]) -> None:
        """``unstable``: calls of functions which decide speed that answer otherwise from call to call; ``own_sizes``: what the problem's
        own sizes are for their arguments.
        """
        self.functions, self.unstable, self.own_sizes = functions, unstable, own_sizes
        super().__init__()
        self.reached: set[int] = set()
        self.params: dict[str, dict[str, Value]] = {}
        self.bindings: dict[int, list[tuple[int, int | None, str]] | None] = {}
        """Calls of functions: (argument, place in it where it is starred, parameter), None where they cannot be told."""
        self._running: list[str] = []
        self._returned: dict[tuple[str, tuple[tuple[str, Value], ...]], Value] = {}
        self._any: set[str] = set()
        self._bodies: dict[int, tuple[list[ast.expr], bool]] = {}
        self._kernels = {name for name, function in functions.items() if is_device(function)}

    # Calls.

    def run(self, name: str, given: Mapping[str, Value]) -> Value:
        """What a function returns for these arguments. To run it again for the same would show nothing new."""
        key = name, tuple(sorted(given.items(), key=operator.itemgetter(0)))
        if name in self._running:  # a recursive function: the depth decides
            return self._run(name, given)
        if key not in self._returned:
            self._returned[key] = self._run(name, given)
        return self._returned[key]

    def _run(self, name: str, given: Mapping[str, Value]) -> Value:
        function = self.functions[name]
        kernel = name in self._kernels
        env: dict[str, Value] = {}
        arguments = function.args.args
        last = [a.arg for a in arguments][len(arguments) - len(function.args.defaults) :]
        defaults = dict(zip(last, function.args.defaults, strict=True))
        for argument in arguments:
            value = given.get(argument.arg)
            if value is None:
                value = self.eval(defaults[argument.arg], {}) if argument.arg in defaults else UNKNOWN
            opaque = kernel and (isinstance(value, AbstractTensor) or argument.arg.startswith(KEPT))
            env[argument.arg] = UNKNOWN if opaque else value
        known_before = self.params.setdefault(name, {})
        for key, value in env.items():
            known_before[key] = join(known_before.get(key), value)
        returned: list[Value] = []
        if self._running.count(name) >= DEEPEST:  # too deep a recursion to follow: once for any arguments
            if name in self._any:
                return UNKNOWN
            self._any.add(name)
            env = dict.fromkeys(env, UNKNOWN)
            known_before.update(env)
        self._running.append(name)
        if self.block(function.body, env, returned):
            returned.append(UNKNOWN)  # it is called for what it does: no constant stands for the call
        self._running.pop()
        result: Value | None = None
        for value in returned:
            result = join(result, value)
        return UNKNOWN if result is None else result

    def _call(self, node: ast.Call, env: dict[str, Value]) -> Value:
        launch = isinstance(node.func, ast.Subscript)
        target = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        args = [self.eval(a, env) for a in node.args]
        keywords = {k.arg: self.eval(k.value, env) for k in node.keywords}
        if launch:
            self.eval(node.func.slice, env)  # type: ignore[attr-defined]
        name = self._text(target)
        if name in self.functions and isinstance(target, ast.Name):
            return self._own(name, node, args, keywords)
        if isinstance(target, ast.Attribute) and not in_namespace(name):
            return self._method(target, args, keywords, env)
        if name in _NEW and args:
            dtype = keywords.get("dtype", UNKNOWN)
            shape = args[0].items if isinstance(args[0], Sequence) else None
            return abstract.contiguous(dtype, shape) if shape is not None and isinstance(dtype, Const) else UNKNOWN
        if name == "torch.empty_like" and isinstance(args[0], AbstractTensor):
            dtype = keywords.get("dtype", args[0].dtype)
            shape = args[0].shape
            return AbstractTensor(dtype, shape, (UNKNOWN,) * len(shape)) if isinstance(dtype, Const) else UNKNOWN
        if name in ("zip", "enumerate") and all(isinstance(a, Sequence) for a in args):
            rows = zip(*(a.items for a in args), strict=False) if name == "zip" else ((const(i), v) for i, v in enumerate(args[0].items))  # type: ignore[union-attr]
            return Sequence(tuple(Sequence(tuple(row)) for row in rows))
        if name == "len" and isinstance(args[0], Sequence):
            return const(len(args[0].items))
        if name in ("list", "tuple") and args and isinstance(args[0], Sequence):
            return Sequence(args[0].items, name == "list")
        if name in ("float", "int") and args and isinstance(args[0], AbstractTensor):
            return UNKNOWN
        if isinstance(target, ast.Attribute) and not isinstance(target.value, ast.Name | ast.Attribute):
            self.eval(target.value, env)  # ``tl.load(...).to(...)``
        function = _FUNCTIONS.get(name)
        if function is None or any(isinstance(a, ast.Starred) for a in node.args):
            return UNKNOWN
        return apply(function, *args)

    def _own(self, name: str, node: ast.Call, args: list[Value], keywords: dict[str | None, Value]) -> Value:
        params = [a.arg for a in self.functions[name].args.args]
        given: dict[str, Value] = {}
        binding: list[tuple[int, int | None, str]] | None = []
        at = 0
        for i, (argument, value) in enumerate(zip(node.args, args, strict=True)):
            if not isinstance(argument, ast.Starred):
                parts: list[tuple[int | None, Value]] = [(None, value)]
            elif isinstance(value, Sequence):
                parts = list(enumerate(value.items))
            else:
                binding = None
                break
            for place, part in parts:
                given[params[at]] = part
                binding.append((i, place, params[at]))  # type: ignore[union-attr]
                at += 1
        if binding is None:
            given = dict.fromkeys(params, UNKNOWN)
        given |= {k: v for k, v in keywords.items() if k in params}
        if id(node) in self.bindings and self.bindings[id(node)] != binding:
            binding = None
        self.bindings[id(node)] = binding
        if decides_speed(name):
            return self._asked(name, node, given)
        return self.run(name, given)

    def _asked(self, name: str, node: ast.Call, given: dict[str, Value]) -> Value:
        """A function that decides speed, asked for the problem's own sizes."""
        try:
            answer = const(_function(name)(**{k: abstract.hint_of(v) for k, v in given.items()}))
        except (TypeError, AttributeError, RuntimeError):
            answer = None
        before = self.seen.get(id(node))
        if answer is None or (before is not None and before != answer) or self._must_fit(name, given):
            self.unstable.add(id(node))
        if id(node) in self.unstable:
            self.run(name, {k: v if k == HELD or isinstance(v, Const) else self._own_size(name, k, v) for k, v in given.items()})
            return _varying(answer) if answer is not None else UNKNOWN
        self.params.setdefault(name, {}).update(dict.fromkeys(given, UNKNOWN))
        return answer  # type: ignore[return-value]

    def _must_fit(self, name: str, given: dict[str, Value]) -> bool:
        return name.endswith("_tiles") and isinstance(given.get(HELD), Unknown)

    def _own_size(self, name: str, param: str, value: Value) -> Value:
        """An argument of a function that decides speed: the problem's own size where every call has the same there, so that no other
        size is compiled for anew."""
        hints = self.own_sizes.setdefault((name, param), set())
        hints.add(value.hint if isinstance(value, Unknown) and isinstance(value.hint, int) else None)
        return Const(tuple(hints)) if len(hints) == 1 and None not in hints else UNKNOWN

    def _method(self, target: ast.Attribute, args: list[Value], keywords: dict[str | None, Value], env: dict[str, Value]) -> Value:
        owner = self.eval(target.value, env)
        if isinstance(owner, AbstractTensor) and not keywords:
            return abstract.method(owner, target.attr, args)
        if isinstance(owner, AbstractTensor) and target.attr in ("contiguous", "clone"):
            return abstract.contiguous(owner.dtype, owner.shape)
        if isinstance(target.value, ast.Name) and target.attr in ("append", "extend", "insert"):
            env[target.value.id] = UNKNOWN
        if target.attr == "to" and isinstance(owner, Const) and owner.single and isinstance(owner.hint, int):
            return owner  # a number has no type of its own in a kernel
        return UNKNOWN

    # Statements.

    def block(self, body: list[ast.stmt], env: dict[str, Value], returned: list[Value]) -> bool:
        """Run statements; whether what follows them is reached."""
        return all(self.statement(s, env, returned) for s in body)

    def statement(self, node: ast.stmt, env: dict[str, Value], returned: list[Value]) -> bool:
        """Run one statement; whether what follows it is reached."""
        self.reached.add(id(node))
        match node:
            case ast.Return():
                returned.append(self.eval(node.value, env) if node.value else const(None))
                return False
            case ast.Raise() | ast.Break() | ast.Continue():
                return False
            case ast.If():
                return self._if(node, env, returned)
            case ast.For():
                return self._for(node, env, returned)
            case ast.While():
                for _ in range(LONGEST):
                    if known(self.eval(node.test, env)) != (True, True) or not self.block(node.body, env, returned):
                        break
                if truth_of(self.eval(node.test, env)) is not False:
                    self._unknown_times(node.body, env, returned)
                    self.eval(node.test, env)
            case ast.Assign():
                value = self.eval(node.value, env)
                for target in node.targets:
                    self._bind(target, value, env)
            case ast.AnnAssign() if node.value is not None:
                self._bind(node.target, self.eval(node.value, env), env)
            case ast.AugAssign():
                old = self.eval(_as_read(node.target), env)
                value = apply(OPERATORS[type(node.op)], old, self.eval(node.value, env))
                self._bind(node.target, value, env)
            case ast.Expr():
                self.eval(node.value, env)
        return True

    def _if(self, node: ast.If, env: dict[str, Value], returned: list[Value]) -> bool:
        test = truth_of(self.eval(node.test, env))
        if test is not None:
            return self.block(node.body if test else node.orelse, env, returned)
        other = dict(env)
        first, second = self.block(node.body, env, returned), self.block(node.orelse, other, returned)
        if first and second:
            for name in env.keys() | other.keys():
                env[name] = join(env[name], other[name]) if name in env and name in other else UNKNOWN
        elif second:
            env.clear()
            env.update(other)
        return first or second

    def _for(self, node: ast.For, env: dict[str, Value], returned: list[Value]) -> bool:
        items = self.eval(node.iter, env)
        leaves = self._parts(node.body)[1]
        if isinstance(items, Sequence) and len(items.items) <= LONGEST and not leaves:
            for item in items.items:
                self._bind(node.target, item, env)
                self.block(node.body, env, returned)
            return True
        self._forget(node.body, env)
        self._bind(node.target, UNKNOWN, env)
        self._unknown_times(node.body, env, returned)
        return True

    def _unknown_times(self, body: list[ast.stmt], env: dict[str, Value], returned: list[Value]) -> None:
        self._forget(body, env)
        self.block(body, env, returned)
        self._forget(body, env)

    def _forget(self, body: list[ast.stmt], env: dict[str, Value]) -> None:
        """Forget what is known of the names that the statements bind."""
        for n in self._parts(body)[0]:
            if isinstance(n, ast.Name):
                env[n.id] = UNKNOWN
            else:
                self._bind(n, UNKNOWN, env)

    def _parts(self, body: list[ast.stmt]) -> tuple[list[ast.expr], bool]:
        """What the statements bind, and whether they may leave a loop."""
        if id(body) not in self._bodies:
            nodes = [n for statement in body for n in ast.walk(statement)]
            stored = [n for n in nodes if isinstance(n, ast.Name | ast.Subscript) and isinstance(n.ctx, ast.Store)]
            bound = [n for n in stored if isinstance(n, ast.Name) or isinstance(n.value, ast.Name)]
            leaves = any(isinstance(n, ast.Break | ast.Continue | ast.Return) for n in nodes)
            self._bodies[id(body)] = [*bound], leaves
        return self._bodies[id(body)]

    def _bind(self, target: ast.expr, value: Value, env: dict[str, Value]) -> None:
        if isinstance(target, ast.Name):
            env[target.id] = value
        elif isinstance(target, ast.Tuple):
            stars = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
            items: tuple[Any, ...] = (UNKNOWN,) * len(target.elts)
            if isinstance(value, Sequence) and stars and len(value.items) >= len(target.elts) - 1:
                after = len(target.elts) - stars[0] - 1
                end = len(value.items) - after
                items = (*value.items[: stars[0]], Sequence(value.items[stars[0] : end], True), *value.items[end:])
            elif isinstance(value, Sequence) and len(value.items) == len(target.elts):
                items = value.items
            for part, item in zip(target.elts, items, strict=True):
                self._bind(part.value if isinstance(part, ast.Starred) else part, item, env)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            base = env.get(target.value.id, UNKNOWN)
            env[target.value.id] = UNKNOWN
            if isinstance(base, AbstractTensor):
                env[target.value.id] = base
            elif isinstance(base, Sequence):
                index = known(self.eval(target.slice, env))[1]
                parts = list(base.items)
                if isinstance(index, int):
                    parts[index] = value
                else:
                    parts = [UNKNOWN] * len(parts)
                env[target.value.id] = Sequence(tuple(parts), True)


def _varying(answer: Value) -> Value:
    if isinstance(answer, Sequence):
        return Sequence(tuple(_varying(i) for i in answer.items), answer.is_list)
    return Unknown(known(answer)[1])


def _as_read(target: ast.expr) -> ast.expr:
    return syntax_tree(ast.unparse(target), mode="eval").body


def is_device(function: ast.FunctionDef) -> bool:
    """Whether it runs on the GPU."""
    return any("jit" in ast.unparse(d) for d in function.decorator_list)
