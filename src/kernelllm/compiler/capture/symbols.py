"""The problem is run with symbols in place of its size constants.

Every integer literal that a module-level name of the problem is set to becomes a backed symbol of one ``ShapeEnv``.
The module is then built, and its inputs are drawn, on fake tensors: shapes of parameters, buffers and inputs, and
integer attributes such as ``hidden_size``, come out as expressions of those symbols, so two dimensions share a
symbol exactly when they come from the same constant. Nothing is allocated.
"""

from __future__ import annotations

import ast
import builtins
import copy
import linecache
import math
import re
import sys
import traceback
import types
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from kernelllm.compiler.capture import least_sizes, size_functions
from kernelllm.compiler.capture.patching import patch
from kernelllm.core.errors import ProblemError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems.instance import import_root, importable
from kernelllm.problems.readable_sizes import readable
from kernelllm.problems.sizes import is_size, literals

SOURCE = "__source_of_problem__"
"""Under this name a problem's globals hold its text."""
__all__ = ["answer"]
_TABLE = "__kernelllm_sizes__"

def literal(node: ast.expr) -> Any:
    """The value of an expression built from numbers, arithmetic, tuples and lists alone; raises ValueError otherwise."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -literal(node.operand)
    if isinstance(node, ast.Tuple | ast.List):
        values = [literal(e) for e in node.elts]
        return tuple(values) if isinstance(node, ast.Tuple) else values
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Pow):
        left, right = literal(node.left), literal(node.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return eval(compile(ast.Expression(ast.fix_missing_locations(
                ast.BinOp(ast.Constant(left), node.op, ast.Constant(right)))), "<literal>", "eval"))
        if isinstance(node.op, ast.Mult) and isinstance(left, list | tuple) and isinstance(right, int):
            return left * right
    raise ValueError


def size_keys(name: str, value: Any) -> dict[str, int]:
    """``{"batch": 8}`` or ``{"shape[0]": 3, "shape[1]": 224}``: the integers in ``value`` that may become symbols."""
    if isinstance(value, int):
        return {name: value} if is_size(name, value) else {}
    if isinstance(value, tuple | list):
        return {key: size for i, v in enumerate(value) for key, size in size_keys(f"{name}[{i}]", v).items()}
    return {}


def _written(key: str, value: Any, keys: Mapping[str, int]) -> ast.expr:
    """The value as an expression, with look-ups of the integers in ``keys``."""
    if isinstance(value, tuple | list):
        items = [_written(f"{key}[{i}]", v, keys) for i, v in enumerate(value)]
        return ast.Tuple(items, ast.Load()) if isinstance(value, tuple) else ast.List(items, ast.Load())
    return _lookup(key) if key in keys else ast.Constant(value)


class _SizeLookups(ast.NodeTransformer):
    """Routes the literals of module-level assignments, and those in the input functions, through a table."""

    def __init__(self, inner: Mapping[tuple[int, int], tuple[str, int]], arguments: Mapping[str, str]) -> None:
        self.found: dict[str, int] = {}
        self._inner, self._arguments = inner, arguments
        """(line, column) of literals inside expressions and functions, to their name and value."""

    def module(self, tree: ast.Module) -> ast.Module:
        tree.body = [part for statement in tree.body for part in _unchained(self.visit(statement))]
        for statement in tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                statement.value = self._assign(targets[0], statement.value)
        return ast.fix_missing_locations(tree)

    def visit(self, node: ast.AST) -> Any:
        """A literal with a generated name becomes a look-up of that name."""
        if isinstance(node, ast.Constant | ast.BinOp) and (node.lineno, node.col_offset) in self._inner:
            name, value = self._inner[(node.lineno, node.col_offset)]
            if is_size(self._arguments.get(name, name), value):
                self.found[name] = value
                return ast.copy_location(_lookup(name), node)
            return node
        return self.generic_visit(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> ast.expr:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            value.elts = [self._assign(t, v) for t, v in zip(target.elts, value.elts, strict=True)]
            return value
        if not isinstance(target, ast.Name):
            return value
        try:
            known = literal(value)
        except (ValueError, ArithmeticError):
            return value
        keys = size_keys(target.id, known)
        if not keys:
            return value
        self.found.update(keys)
        return _written(target.id, known, keys)


def _unchained(statement: ast.stmt) -> list[ast.stmt]:
    """``height = width = 128`` as two assignments: the two sizes are changed apart from each other."""
    if not isinstance(statement, ast.Assign) or not all(isinstance(target, ast.Name) for target in statement.targets):
        return [statement]
    try:
        literal(statement.value)
    except (ValueError, ArithmeticError):
        return [statement]
    return [ast.copy_location(ast.Assign([target], copy.deepcopy(statement.value)), statement) for target in statement.targets]


def _lookup(key: str) -> ast.expr:
    return ast.Subscript(ast.Name(_TABLE, ast.Load()), ast.Constant(key), ast.Load())


def parse(problem: Problem) -> tuple[Any, dict[str, int]]:
    """The problem's code with its size literals routed through a table, and those literals. Raises ProblemError."""
    try:
        tree = syntax_tree(problem.source)
        sizes = _SizeLookups(literals(problem.source), readable(problem.source))
        code = compile(sizes.module(tree), problem.path or f"<{problem.name}>", "exec")
    except (SyntaxError, ValueError) as error:
        raise ProblemError(f"The problem is not valid Python: {error}.", where=problem.path or problem.name) from error
    return code, sizes.found


Factor = int | str
"""What a size is a multiple of: a number, or another size by its key."""


def new_symbols(env: ShapeEnv, values: Mapping[str, int], factors: Mapping[str, Factor]) -> dict[str, torch.SymInt]:
    """One fresh backed symbol for each key, hinted with its value; a key in ``factors`` is that multiple of its symbol.

    A factor that is another key must be in ``values`` and have a plain symbol of its own.
    """
    made: dict[str, torch.SymInt] = {}
    for key, value in sorted(values.items(), key=lambda pair: isinstance(factors.get(pair[0]), str)):
        factor = factors.get(key, 1)
        number = values[factor] if isinstance(factor, str) else factor
        source = ConstantSource(re.sub(r"\W+", "_", key).strip("_"))
        symbol = env.create_symbol(value // number, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        node = env.create_symintnode(symbol, hint=value // number, source=source)
        made[key] = (made[factor] if isinstance(factor, str) else factor) * node
    return {key: made[key] for key in values}


def execute(problem: Problem, code: Any, table: Mapping[str, Any]) -> dict[str, Any]:
    """Run the problem's module code with ``table`` in place of its size literals; returns its namespace."""
    folder, package = import_root(problem.path)
    module = sys.modules["kernelllm_problem"] = types.ModuleType("kernelllm_problem")  # dataclasses look their module up here
    namespace = vars(module)
    namespace |= {"__package__": package, "__file__": problem.path or f"<{problem.name}>"}
    namespace |= {_TABLE: table, SOURCE: problem.source}
    with importable(folder):
        exec(code, namespace)
    return namespace


def _no_init(tensor: Any, *_: Any, **__: Any) -> Any:
    return tensor


@contextmanager
def symbol_aware(namespace: dict[str, Any] | None = None, *, building: bool = True) -> Iterator[None]:
    """While open, symbols stay symbols in Python code that would turn them into numbers.

    Covers ``int``, ``round``, ``max``, ``min`` in the problem's namespace, ``math.sqrt`` and friends, type checks of
    ``torch.nn`` and, while a module is built, its parameter initialisers (whose values are of no interest on fake tensors). Layers that
    a forward makes have theirs. All is undone at exit.
    """
    import torch.nn.modules.flatten as flatten
    import torch.nn.modules.normalization as normalization
    import torch.nn.modules.rnn as rnn
    from torch.nn import init

    with ExitStack() as stack:
        stack.enter_context(least_sizes.noted())
        for name, function in (
            ("sqrt", torch.sym_sqrt),
            ("floor", size_functions.floor),
            ("ceil", size_functions.ceil),
            ("log", size_functions.log),
            ("log2", size_functions.log2),
        ):
            patch(stack, math, name, size_functions.function_of(function, getattr(math, name)))
        if "numpy" in sys.modules:
            patch(stack, sys.modules["numpy"], "sqrt", size_functions.function_of(torch.sym_sqrt, sys.modules["numpy"].sqrt))
        patch(stack, normalization, "numbers", types.SimpleNamespace(Integral=size_functions.SymbolicInt))
        for module in (rnn, flatten):
            patch(stack, module, "int", size_functions.SymbolicInt)
        size_functions.keep_long_products(stack)
        patch(stack, torch.nn.functional, "float", size_functions.SymbolicFloat)
        patch(stack, torch.nn.functional, "min", size_functions.extreme(builtins.min, torch.sym_min))
        if building:
            for name in dir(init):
                if name.endswith("_") and not name.startswith("_"):
                    patch(stack, init, name, _no_init)
            patch(stack, init, "_calculate_fan_in_and_fan_out", lambda tensor: (1, 1))
            patch(stack, torch.nn.RNNBase, "reset_parameters", lambda self: None)
        if namespace is not None:
            for name, value in {
                "int": size_functions.SymbolicInt,
                "float": size_functions.SymbolicFloat,
                "round": size_functions.rounded,
                "divmod": lambda size, by: (size // by, size % by),
                "max": size_functions.extreme(builtins.max, size_functions.larger),
                "min": size_functions.extreme(builtins.min, torch.sym_min),
            }.items():
                if name not in namespace:
                    namespace[name] = value
                    stack.callback(namespace.pop, name, None)
        yield


def answer() -> bool | None:
    """The truth that the code which asks for it must find, where all that it does is raise: ``if torch.any(x < 0): raise ...``."""
    frame = sys._getframe(2)
    return _checked_at(tuple(_rows(frame)), frame.f_lineno)


def _rows(frame: types.FrameType) -> list[str]:
    held = frame.f_globals.get(SOURCE)
    return held.splitlines(keepends=True) if held else linecache.getlines(frame.f_code.co_filename, frame.f_globals)


def raised_by_its_own_line(error: Exception) -> bool:
    """Whether a ``raise`` or an ``assert`` outside of torch raised it: the code says that this may not be."""
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    if frame.f_globals.get("__name__", "").partition(".")[0] in ("torch", "kernelllm"):
        return False
    return any(word in text for text in _rows(frame)[line - 1 : line] for word in ("raise ", "assert "))


@lru_cache(maxsize=64)
def _checked_at(rows: tuple[str, ...], line: int) -> bool | None:
    try:
        tree = syntax_tree("".join(rows))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.test.end_lineno or 0):
            return _plain(node.test, wanted=True)
        if isinstance(node, ast.If) and node.lineno <= line <= (node.test.end_lineno or 0):
            raises = len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse
            return _plain(node.test, wanted=False) if raises else None
    return None


def _plain(test: ast.expr, *, wanted: bool) -> bool | None:
    """What the tensor in the test must be for the test to be ``wanted``; None where the test holds more than one."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, wanted = test.operand, not wanted
    return None if isinstance(test, ast.BoolOp) else wanted
