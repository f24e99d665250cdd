"""Static analysis of a Triton kernel's source, masked lanes without a value included.

Only what is certain is told: a lane is followed along the axes of its mask, through elementwise arithmetic, until ``tl.where`` or anything
that is not known here.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from kernelllm.backends.base import LanguageNames
from kernelllm.core.text import syntax_tree

DECORATORS = ("triton.jit", "triton.runtime.jit.jit", "triton.experimental.gluon.jit")
FORBIDDEN = {
    "native_code": (
        "triton.runtime.build", "triton.backends", "triton.runtime.driver.active.utils.load_binary",
        "triton.runtime.driver.active.utils.launch",
    ),
    "introspection": ("triton.runtime.interpreter",),
    "tampering": (
        "triton.knobs.runtime.interpret", "triton.knobs.runtime.add_stages_inspection_hook", "triton.knobs.compilation.listener",
        "triton.knobs.compilation.override", "triton.knobs.build", "triton.knobs.cache.manager_class",
        "triton.knobs.cache.remote_manager_class", "triton.knobs.cache.override_dir", "triton.knobs.nvidia.ptxas",
        "triton.knobs.nvidia.libcuda_path", "triton.runtime.driver.set_active", "triton.runtime.driver.reset_active",
    ),
    "clock": ("triton.testing", "triton.language.extra.cuda.globaltimer", "triton.language.extra.cuda.utils.globaltimer"),
}
NARROW_TYPES = {
    "float16": "float16", "half": "float16", "bfloat16": "bfloat16", "float8e4nv": "float8_e4m3fn", "float8e5": "float8_e5m2",
    "float8e4b15": "float8_e4m3b15", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}  # fmt: skip
NAMES = LanguageNames(
    modules=("triton", "math", "torch._inductor.runtime.triton_helpers"),
    builtins=frozenset((
        "range", "len", "min", "max", "int", "float", "bool", "print", "isinstance", "getattr", "hasattr", "slice", "tuple", "list", "abs",
        "sum", "zip", "enumerate", "str", "repr", "AssertionError", "ValueError", "RuntimeError", "NotImplementedError",
    )),
    python_attributes=frozenset((
        "handle", "builder", "fn", "numpy", "item", "tolist", "cpu", "cuda", "is_cuda", "data_ptr", "device", "requires_grad",
    )),
    constant_functions=("triton.constexpr_function", "triton.runtime.jit.constexpr_function", "triton.runtime.constexpr_function"),
    launching=(
        "triton.runtime.driver", "triton.runtime.driver.active", "triton.runtime.driver.active.get_current_stream",
        "triton.runtime.driver.active.get_current_device",
    ),
    machine=(
        "triton.__version__", "triton.runtime.driver", "triton.runtime.jit.JITFunction", "triton.runtime.JITFunction", "triton.JITFunction",
        "triton.knobs.runtime",
    ),
)  # fmt: skip
_ROUNDING_PRODUCTS = ("tf32", "bf16", "bf16x1")
_STORES = {"store"}
_SOURCES = {"load", "zeros", "full", "zeros_like", "cast"}
_SHAPES = {"to", "trans", "reshape", "view", "broadcast_to", "expand_dims", "permute", "ravel", "join", "flip"}
_REDUCTIONS = frozenset({"sum", "max", "min", "argmax", "argmin", "xor_sum", "cumsum", "cumprod", "sort", "histogram", "reduce"})
_RANGES, _SCALARS = frozenset({"arange"}), frozenset({"program_id", "num_programs", "cdiv"})
_ELEMENTWISE = frozenset({
    "to", "cast", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "abs", "sin", "cos", "erf", "sigmoid", "maximum", "minimum", "fma",
})  # fmt: skip
Axes = frozenset[int]


def undefined_results(kernel: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    """Line of a load without ``other`` whose masked lanes count, and what they count in."""
    axes: dict[str, Axes | None] = {a.arg: frozenset() for a in kernel.args.args}
    lanes: dict[str, tuple[int, Axes]] = {}
    for node in _statements(kernel.body):
        for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
            if (name := _function(call)) in _REDUCTIONS and call.args:
                found, axis = _undefined(call.args[0], axes, lanes), _axis(call)
                if found and (axis is None or axis in found[1]):
                    yield found[0], f"tl.{name} (line {call.lineno})"
            elif name in ("store", "atomic_add") and len(call.args) == 2 and not _keyword(call, "mask"):
                found = _undefined(call.args[1], axes, lanes)
                if found:
                    yield found[0], f"tl.{name} without a mask (line {call.lineno})"
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                axes[name] = _axes(value, axes)
                found = _undefined(value, axes, lanes)
                lanes.pop(name, None)
                if found:
                    lanes[name] = found
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                axes[name] = _joined([axes.get(name), _axes(value, axes)])
                if found := _undefined(value, axes, lanes):
                    lanes.setdefault(name, found)


def _statements(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Simple statements in the order of the source, and the heads of compound ones."""
    for statement in body:
        if isinstance(statement, ast.For | ast.While | ast.If):
            yield statement.iter if isinstance(statement, ast.For) else statement.test
            yield from _statements([*statement.body, *statement.orelse])
        else:
            yield statement


def _undefined(node: ast.expr, axes: dict[str, Axes | None], lanes: dict[str, tuple[int, Axes]]) -> tuple[int, Axes] | None:
    """Line of the load, and the axes along which lanes of a value are undefined."""

    def inner(*parts: ast.expr) -> tuple[int, Axes] | None:
        return next((found for part in parts if (found := _undefined(part, axes, lanes))), None)

    match node:
        case ast.Name(id=name):
            return lanes.get(name)
        case ast.BinOp(left=left, right=right):
            return inner(left, right)
        case ast.UnaryOp(operand=operand):
            return inner(operand)
        case ast.Call():
            name, mask = _function(node), _keyword(node, "mask")
            if name == "load" and mask is not None and not _keyword(node, "other") and len(node.args) == 1:
                along = _axes(mask, axes)
                return (node.lineno, along) if along else None
            if name in _ELEMENTWISE:
                method = isinstance(node.func, ast.Attribute) and name == "to"
                return inner(*([node.func.value] if method and isinstance(node.func, ast.Attribute) else node.args))
    return None


def _axes(node: ast.expr, known: dict[str, Axes | None]) -> Axes | None:
    """Axes along which a value differs; None where that cannot be told."""
    match node:
        case ast.Constant():
            return frozenset()
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, right=right):
            return _joined([_axes(left, known), _axes(right, known)])
        case ast.Compare(left=left, comparators=others):
            return _joined([_axes(left, known), *(_axes(other, known) for other in others)])
        case ast.UnaryOp(operand=operand):
            return _axes(operand, known)
        case ast.Subscript(value=value, slice=ast.Tuple(elts=parts)):
            whole = [index for index, part in enumerate(parts) if isinstance(part, ast.Slice)]
            return frozenset(whole) if _axes(value, known) == frozenset({0}) and len(whole) == 1 else None
        case ast.Call() if _function(node) in _RANGES:
            return frozenset({0})
        case ast.Call() if _function(node) in _SCALARS:
            return frozenset()
    return None


def _joined(parts: list[Axes | None]) -> Axes | None:
    known = [part for part in parts if part is not None]
    return frozenset().union(*known) if len(known) == len(parts) else None


def _function(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _axis(call: ast.Call) -> int | None:
    """The axis of a reduction; None: all axes."""
    given = _keyword(call, "axis") or (call.args[1] if len(call.args) > 1 else None)
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, int) else None


def computes(source: str) -> bool:
    """False when every value that the kernel stores was loaded (or is a constant) and nothing was done to it. True in doubt."""
    try:
        tree = syntax_tree(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError):
        return True
    assigned: dict[str, list[ast.expr | None]] = {}
    stored: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                assigned.setdefault(name, []).append(value)
            case ast.AugAssign(target=ast.Name(id=name)):
                assigned.setdefault(name, []).append(None)
            case ast.Assign(targets=targets):
                for name in (inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)):
                    assigned.setdefault(name, []).append(None)
            case ast.Call(func=ast.Attribute(attr=attr), args=args) if attr in _STORES and len(args) > 1:
                stored.append(args[1])
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in _STORES or attr.startswith("atomic_"):
                return True
    return not stored or not all(_moved(value, assigned, 0) for value in stored)


def _moved(value: ast.expr | None, assigned: dict[str, list[ast.expr | None]], depth: int) -> bool:
    """True when the expression is a loaded value or a constant, at most reshaped or cast."""
    if depth > 10:
        return False
    match value:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=ast.Constant()):
            return True
        case ast.Name(id=name):
            return name in assigned and all(_moved(each, assigned, depth + 1) for each in assigned[name])
        case ast.Call(func=ast.Attribute(value=owner, attr=attr), args=args):
            if attr in _SOURCES:
                return True
            if attr in _SHAPES:
                inner = args[0] if isinstance(owner, ast.Name) and owner.id in ("tl", "language") and args else owner
                return _moved(inner, assigned, depth + 1)
        case ast.Subscript(value=inner):
            return _moved(inner, assigned, depth + 1)
    return False


def lowers_precision(path: str, options: Mapping[str, Any]) -> str:
    """How a dot product with these options rounds operands of float32; empty when it does not, or is none."""
    if not (path.endswith(".dot") and path.startswith("triton")):
        return ""
    if options.get("input_precision") in _ROUNDING_PRODUCTS:
        return f"A dot product with input_precision={options['input_precision']!r}."
    return "A dot product that may use TF32." if options.get("allow_tf32") else ""


def keeps_remainder(kernel: ast.FunctionDef) -> bool:
    """Whether what a narrow type loses is kept in a second value: ``high = x.to(tl.float16)``, ``x - high.to(tl.float32)``."""
    inside = list(ast.walk(kernel))
    narrowed = {
        target.id for node in inside if isinstance(node, ast.Assign) and _narrows(node.value)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    for node in inside:
        match node:
            case ast.BinOp(op=ast.Sub(), right=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="to"))) if name in narrowed:
                return True
    return False


def _narrows(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(attr="to" | "cast"), args=args, keywords=keywords):
            kinds = [*args, *(keyword.value for keyword in keywords)]
            return any(isinstance(kind, ast.Attribute) and kind.attr in NARROW_TYPES for kind in kinds)
    return False
