"""The plain Triton that stands for Inductor's helpers; the functions themselves are in ``kernel_helpers.py``."""

from __future__ import annotations

from pathlib import Path

from kernelllm.compiler.emit.embed import Definition, definitions

HELPERS: dict[str, Definition] = definitions(Path(__file__).with_name("kernel_helpers.py"))
"""Every helper by name, in the order in which a file has them."""

RENAMED = {
    "triton_helpers.maximum": "maximum",
    "triton_helpers.minimum": "minimum",
    "triton_helpers.max2": "max_along",
    "triton_helpers.min2": "min_along",
    "triton_helpers.any": "any_along",
    "triton_helpers.prod": "prod_along",
    "triton_helpers.maximum_with_index": "keep_larger",
    "triton_helpers.minimum_with_index": "keep_smaller",
    "triton_helpers.max_with_index": "argmax_along",
    "triton_helpers.min_with_index": "argmin_along",
    "triton_helpers.welford_combine": "welford_merge",
    "triton_helpers.welford": "welford_along",
    "triton_helpers.online_softmax_combine_with_sum": "softmax_merge",
    "triton_helpers.div_floor_integer": "floor_div",
    "triton_helpers.remainder_integer": "floor_mod",
    "triton_helpers.promote_to_tensor": "",
}
"""Inductor's helper to ours; an empty name means that the argument itself will do."""

_BUILTIN = (
    "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "floor", "ceil", "sigmoid", "sqrt_rn", "fma", "div_rn",
)  # fmt: skip


def plain_name(name: str) -> str:
    """The name to call in place of ``tl_math.x``, ``libdevice.x`` or ``tl.math.x``."""
    for prefix in ("tl_math.", "libdevice.", "tl.math.", "math."):
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            return f"tl.{rest}" if rest in _BUILTIN else f"libdevice.{rest}"
    return name


def closure(names: set[str]) -> list[str]:
    """The helpers needed for ``names`` and by each other, in the library's order."""
    wanted: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            todo += HELPERS.keys() & HELPERS[name].needs
    return [name for name in HELPERS if name in wanted]
