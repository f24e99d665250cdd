"""What the source of a Triton kernel tells."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from typing import Any

from kernelllm.backends.base import LanguageNames
from kernelllm.core.text import parse

DECORATORS = ("triton.jit", "triton.runtime.jit.jit", "triton.experimental.gluon.jit")
FORBIDDEN = {
    "native_code": ("triton.runtime.build", "triton.backends"),
    "introspection": ("triton.runtime.interpreter",),
    "tampering": ("triton.knobs.runtime.interpret",),
    "clock": ("triton.testing",),
}
NARROW_TYPES = {
    "float16": "float16", "half": "float16", "bfloat16": "bfloat16", "float8e4nv": "float8_e4m3fn", "float8e5": "float8_e5m2",
    "float8e4b15": "float8_e4m3b15", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}  # fmt: skip
NAMES = LanguageNames(
    modules=("triton", "math.pi", "math.e", "math.inf", "math.nan"),
    builtins=frozenset((
        "range", "len", "min", "max", "int", "float", "bool", "print", "isinstance", "getattr", "hasattr", "slice", "tuple", "list", "abs",
        "sum", "zip", "enumerate", "str", "repr", "AssertionError", "ValueError", "RuntimeError", "NotImplementedError",
    )),
    python_attributes=frozenset((
        "handle", "builder", "fn", "numpy", "item", "tolist", "cpu", "cuda", "is_cuda", "data_ptr", "device", "requires_grad",
    )),
    constant_functions=("triton.constexpr_function", "triton.runtime.jit.constexpr_function", "triton.runtime.constexpr_function"),
    machine=(
        "triton.__version__", "triton.runtime.driver", "triton.runtime.jit.JITFunction", "triton.runtime.JITFunction", "triton.JITFunction",
        "triton.knobs.runtime",
    ),
)  # fmt: skip
_ROUNDING_PRODUCTS = ("tf32", "bf16", "bf16x1")
_STORES = {"store"}
_SOURCES = {"load", "zeros", "full", "zeros_like", "cast"}
_SHAPES = {"to", "trans", "reshape", "view", "broadcast_to", "expand_dims", "permute", "ravel", "join", "flip"}


def computes(source: str) -> bool:
    """False when every value that the kernel stores was loaded (or is a constant) and nothing was done to it. True in doubt."""
    try:
        tree = parse(textwrap.dedent(source))
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
