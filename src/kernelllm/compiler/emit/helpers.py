"""What a file needs besides its own kernels: functions copied out of the templates, and plain Triton in place of Inductor's helpers."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelllm.compiler import scored_operators
from kernelllm.compiler.emit.ast_tools import reads
from kernelllm.core.errors import CaptureError
from kernelllm.core.text import syntax_tree


@dataclass(frozen=True)
class Definition:
    """One top-level definition of a template module."""

    name: str
    text: str
    needs: frozenset[str]
    order: tuple[str, int]


PLAIN = "templates/plain"


@cache
def library(folder: str = "templates") -> dict[str, Definition]:
    """Every top-level definition of every template module of a folder, by name."""
    modules = (Path(__file__).resolve().parent.parent / folder).glob("*.py")
    return {name: found for path in sorted(modules, reverse=True) for name, found in definitions(path).items()}


def definitions(path: Path) -> dict[str, Definition]:
    """Every top-level definition of a module, by name."""
    return defined_in(path.read_text(encoding="utf-8"), path.name)


def defined_in(source: str, module: str) -> dict[str, Definition]:
    """Every top-level definition of a module's text, by name."""
    lines = source.splitlines()
    return {
        name: Definition(name, _source(lines, node), frozenset(reads(node)), (module, node.lineno))
        for node in syntax_tree(source).body
        for name in _defined(node)
        if not name.startswith("__")
    }


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _source(lines: list[str], node: ast.stmt) -> str:
    first = node.lineno
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
        first = min(d.lineno for d in node.decorator_list)
    while first > 1 and lines[first - 2].startswith("#") and not lines[first - 2].startswith("# ruff"):
        first -= 1
    assert node.end_lineno is not None
    return "\n".join(lines[first - 1 : node.end_lineno])


def definitions_for(names: set[str], *, plain: bool = False) -> list[Definition]:
    """The definitions of some host functions and all that they need, in the modules' order. ``plain``: those to learn from, where they
    define all names.

    Raises CaptureError where no template defines a name.
    """
    known = library(PLAIN) | library()  # a few have the plain form alone
    for name in names & scored_operators.TEXTS.keys():
        known = known | defined_in(scored_operators.TEXTS[name], name)
    if plain and names <= library(PLAIN).keys():
        known = library(PLAIN)
    wanted: dict[str, Definition] = {}

    def add(name: str) -> None:
        if name in wanted or name not in known:
            return
        wanted[name] = known[name]
        for need in known[name].needs:
            add(need)

    for name in names:
        if name not in known:
            raise CaptureError(f"No template defines {name}().", where="emit", fix="Use --extern allow.")
        add(name)
    return sorted(wanted.values(), key=lambda p: p.order)


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
