"""Operators of a step as expressions of Triton."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from kernelllm.compiler.recurrences.step_graphs import need

ELEMENTWISE: dict[str, str] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}", "abs": "tl.abs({0})",
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})", "log": "tl.log({0})", "log2": "tl.log2({0})", "sqrt": "tl.sqrt({0})", "rsqrt": "tl.rsqrt({0})",
    "sin": "tl.sin({0})", "cos": "tl.cos({0})", "erf": "tl.erf({0})", "floor": "tl.floor({0})", "ceil": "tl.ceil({0})",
    "sigmoid": "tl.sigmoid({0})", "reciprocal": "1.0 / {0}", "relu": "tl.where({0} < 0, 0, {0})", "square": "{0} * {0}",
    "tanh": "libdevice.tanh({0})", "log1p": "libdevice.log1p({0})", "expm1": "libdevice.expm1({0})",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "where": "tl.where({0}, {1}, {2})", "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}",
    "ge": "{0} >= {1}", "logical_and": "({0} != 0) & ({1} != 0)", "logical_or": "({0} != 0) | ({1} != 0)", "logical_not": "{0} == 0",
    "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_not": "{0} == 0", "bitwise_xor": "{0} ^ {1}", "sign": "",
    "isnan": "{0} != {0}", "isinf": "tl.abs({0}) == float('inf')", "clamp_min": "tl.maximum({0}, {1})", "clamp_max": "tl.minimum({0}, {1})",
    "clamp": "", "pow": "", "remainder": "", "fmod": "",
}  # fmt: skip
"""Expressions by an operator's name; those that are empty have a rule of their own."""
OF_FLOATS = {"div", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "sigmoid", "tanh", "log1p", "expm1", "reciprocal"}
REDUCTIONS: dict[str, tuple[str, str, str]] = {
    "sum": ("0", "tl.sum", ""), "mean": ("0", "tl.sum", "{0} / ({count})"), "amax": ("-inf", "tl.max", ""), "amin": ("inf", "tl.min", ""),
    "max": ("-inf", "tl.max", ""), "min": ("inf", "tl.min", ""), "argmax": ("-inf", "tl.argmax", "{0}.to(tl.int64)"),
    "argmin": ("inf", "tl.argmin", "{0}.to(tl.int64)"), "any": ("0", "tl.max", "{0} != 0"), "all": ("1", "tl.min", "{0} != 0"),
}  # fmt: skip
"""What an element beyond the end counts as, the function, and what is made of its result."""
_FILLS = dict.fromkeys(("zeros", "zeros_like", "new_zeros", "empty", "new_empty", "empty_like"), 0) | dict.fromkeys(
    ("ones", "ones_like", "new_ones"), 1
)


def name_of(node: Node) -> str:
    """The operator's name without its overload."""
    target: Any = node.target
    return str(target.overloadpacket.__name__) if isinstance(target, torch._ops.OpOverload) else str(getattr(target, "__name__", target))


def computed_type(dtype: torch.dtype) -> str:
    """The type in which a value is computed."""
    if dtype in (torch.float16, torch.bfloat16, torch.float32):
        return "tl.float32"
    return "tl.int1" if dtype == torch.bool else f"tl.{str(dtype).removeprefix('torch.')}"


def as_computed(load: str, dtype: torch.dtype) -> str:
    """A load in the type that is computed in."""
    need(not dtype.is_complex and dtype != torch.uint16, "its step computes with complex numbers")
    return load if dtype in (torch.float32, torch.float64, torch.int64, torch.int32) else f"{load}.to({computed_type(dtype)})"


def literal(value: Any, sizes: Any) -> str:
    """A number of Python in a kernel."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"float('{value}')"
    need(isinstance(value, int | torch.SymInt), f"its step has {value!r}")
    return str(sizes.text(value))


def identity(start: str, dtype: torch.dtype) -> str:
    """What an element beyond the end counts as."""
    if "inf" not in start:
        return start
    if dtype.is_floating_point:
        return f"float('{start}')"
    least = torch.iinfo(torch.int32 if dtype == torch.bool else dtype)
    return str(least.min if start.startswith("-") else least.max)


def fill_of(node: Node) -> Any:
    """The number that a tensor is filled with."""
    name = name_of(node)
    if name in _FILLS:
        return _FILLS[name]
    fill: Any = node.args[0] if name == "scalar_tensor" else node.args[2] if name == "new_full" else node.args[1]
    dtype = node.meta["val"].dtype
    if isinstance(fill, int | float) and not isinstance(fill, bool):
        return float(fill) if dtype.is_floating_point else int(fill)
    return fill


def text_of(node: Node, name: str, values: list[str]) -> str:
    """The expression of an elementwise operator."""
    alpha = node.kwargs.get("alpha", 1)
    if name in ("add", "sub") and alpha != 1:
        values = [values[0], f"{values[1]} * {alpha!r}"]
    if name == "div" and node.kwargs.get("rounding_mode") is not None:
        need(node.kwargs["rounding_mode"] == "floor" and node.meta["val"].dtype.is_floating_point, "its step has a rounded quotient")
        return f"tl.floor({values[0]} / {values[1]})"
    if name == "clamp":
        low, high = (node.args[i] if len(node.args) > i else None for i in (1, 2))
        made = values[0] if low is None else f"tl.maximum({values[0]}, {values[1]})"
        return made if high is None else f"tl.minimum({made}, {values[2]})"
    if name == "pow":
        return _power(node, values)
    if name == "sign":
        return f"tl.where({values[0]} > 0, 1.0, tl.where({values[0]} < 0, -1.0, 0.0))"
    need(ELEMENTWISE[name], f"its step has {name}")
    if name == "bitwise_not" and node.meta["val"].dtype != torch.bool:
        return f"~{values[0]}"
    if name == "log1p":  # exact for small numbers as well
        return f"tl.where(tl.abs({values[0]}) < 1e-4, {values[0]} - 0.5 * {values[0]} * {values[0]}, tl.log(1.0 + {values[0]}))"
    if name == "expm1":
        return f"tl.where(tl.abs({values[0]}) < 1e-4, {values[0]} + 0.5 * {values[0]} * {values[0]}, tl.exp({values[0]}) - 1.0)"
    return ELEMENTWISE[name].format(*values)


def _power(node: Node, values: list[str]) -> str:
    exponent = node.args[1]
    known = {2: "{0} * {0}", 3: "{0} * {0} * {0}", 0.5: "tl.sqrt({0})", -1: "1.0 / {0}", -0.5: "tl.rsqrt({0})", 1: "{0}",
             -2: "1.0 / ({0} * {0})"}  # fmt: skip
    need(isinstance(exponent, int | float) and exponent in known, "its step has a power")
    return known[exponent].format(values[0])
