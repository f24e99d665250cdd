"""Jitted functions as the Python functions that the interpreter runs.

Candidates get Triton's own ``JITFunction`` objects, as on a GPU: nothing about a kernel's object tells that it is interpreted. What runs
is a copy of its source, compiled here. The copy's additional names live in a closure; the candidate's globals stay as they are.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter as ti
from triton.runtime.errors import InterpreterError

from kernelllm.backends.triton.emulator import compiled_syntax, scalar_arguments
from kernelllm.backends.triton.kernel_arguments import source_lines
from kernelllm.core.text import syntax_tree

_SEMANTIC = "interpreter semantic"
"""No name that a source could hold."""
_UNKNOWN_TO_A_COMPILER = (ast.Try, ast.AsyncWith, ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.ClassDef, ast.Match)
_IN_PYTHON_ALONE = frozenset({"handle", "builder", "numpy", "data_ptr"})
"""Attributes that values have in the interpreter alone, or that are something else there."""
_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "xor", "lshift", "rshift",
)  # fmt: skip
_made: dict[Callable[..., Any], Callable[..., Any]] = {}


class NotInAKernel(Exception):
    """A kernel uses what only Python knows."""


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs in a jitted function's place."""
    made = _made.get(function)
    if made is None:
        made = _made[function] = ti.FunctionRewriter(function).rewrite_ast()
    return made


def call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands for JITFunction.__call__: a kernel calls a helper of its own or one of the language."""
    if not Running.depth:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    try:
        return interpreted(self.fn)(*args, **kwargs)
    except Exception as error:
        raise InterpreterError(repr(error)) from error


class Running:
    """A context manager for every launch. ``depth``: how many are under way; 0 outside of kernels."""

    depth = 0

    def __enter__(self) -> None:
        Running.depth += 1

    def __exit__(self, *error: object) -> None:
        Running.depth -= 1


def install() -> None:
    """Have Triton's rewriter compile functions apart from the candidate's globals, for good."""
    rewriter: Any = ti.FunctionRewriter
    rewriter.rewrite_ast = _rewritten
    rewriter._compile_and_exec = _compiled
    for name in (f"__{name}__" for name in _OPERATORS):
        setattr(tl.constexpr, name, _of_two(getattr(tl.constexpr, name), getattr(operator, name)))


def _of_two(of_constants: Callable[..., Any], general: Callable[..., Any]) -> Callable[..., Any]:
    """A constant of a file (``A = tl.constexpr(0.5)``) in front of a block gives a block, as where kernels are compiled."""
    return lambda self, other: general(self.value, other) if isinstance(other, tl.core.tensor) else of_constants(self, other)


def _rewritten(self: Any) -> Any:
    """As Triton's own, which looks the source up three times."""
    try:
        lines, first = source_lines(self.fn)
    except (OSError, TypeError) as error:
        raise ValueError("@jit functions should be defined in a Python file") from error
    before = next((i for i, line in enumerate(lines) if line.strip().startswith("def ")), 0)
    self.filename, self.def_file_lineno, self.def_lineno = self.fn.__code__.co_filename, first + before, self._find_def(lines)
    made = self._compile_and_exec(self._transform_ast(self._prepare_source(lines)))
    # the rewritten function's annotations are texts, of which Triton knows "tl.constexpr" alone; a compiled kernel may use any name
    own, kind = self.fn.__annotations__, scalar_arguments.declared
    made.__annotations__ = {n: "constexpr" if "constexpr" in str(t) else kind(own.get(n, "")) for n, t in made.__annotations__.items()}
    return made


def _compiled(self: Any, tree: ast.Module) -> Any:
    """The rewritten function, within one that holds the interpreter and the values of the closure."""
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    if not str(getattr(self.fn, "__module__", "")).startswith("triton."):
        _refuse_python(function)
    compiled_syntax.rewrite(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == "interpreter_semantic":
            node.id = _SEMANTIC
    parameters = function.args
    parameters.defaults = [ast.copy_location(ast.Constant(None), old) for old in parameters.defaults]
    closure = {name: cell.cell_contents for name, cell in zip(self.fn.__code__.co_freevars, self.fn.__closure__ or (), strict=True)}
    closure |= getattr(self, "more", {})
    around = syntax_tree("def enclosing(): pass")
    outer = around.body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.args.args = [ast.copy_location(ast.arg(name), outer) for name in (_SEMANTIC, *compiled_syntax.MEANINGS, *closure)]
    result = ast.copy_location(ast.Name(function.name, ast.Load()), outer)
    outer.body = [function, ast.copy_location(ast.Return(result), outer)]
    code = compile(around, self.filename, "exec")
    found: dict[str, Any] = {}
    exec(code, self.fn.__globals__, found)  # the candidate's own kernel, in the worker that runs the candidate
    made = found["enclosing"](ti.interpreter_semantic, *compiled_syntax.MEANINGS.values(), *closure.values())
    made.__defaults__ = self.fn.__defaults__
    return made


def _refuse_python(function: ast.FunctionDef) -> None:
    """Raise NotInAKernel for what a compiler does not know. Names are left to the compiler and to the checks of the source."""
    for node in ast.walk(function):
        if isinstance(node, _UNKNOWN_TO_A_COMPILER):
            raise NotInAKernel(f"A kernel cannot contain {type(node).__name__.lower()} (line {node.lineno}).")
        if isinstance(node, ast.Attribute) and (node.attr in _IN_PYTHON_ALONE or node.attr.startswith("__")):
            raise NotInAKernel(f"A kernel cannot use the attribute {node.attr!r} (line {node.lineno}).")


class Arithmetic:
    """Of this process so far. ``flops``: two for each multiplication of a dot product, one for each element of any other operation
    on floating-point values; lanes that are masked count as well."""

    flops = 0.0


def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An elementwise operation of the interpreter's builder whose results are counted."""

    def count(self: Any, *args: Any) -> Any:
        result = operation(self, *args)
        Arithmetic.flops += result.data.size
        return result

    return count
