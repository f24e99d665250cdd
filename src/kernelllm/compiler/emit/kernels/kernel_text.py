"""From a cleaned kernel and its launches to the text of a Triton function, and the arguments each launch passes."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sympy

from kernelllm.compiler.emit import formatting
from kernelllm.compiler.emit.ast_tools import Rename, all_reads, every, fresh, name_of
from kernelllm.compiler.emit.helpers import HELPERS, RENAMED, plain_name
from kernelllm.compiler.emit.kernels import indices, integer_text, integers
from kernelllm.compiler.emit.kernels.block_sizes import LaunchConfig
from kernelllm.compiler.emit.kernels.clean import Cleaned
from kernelllm.compiler.emit.kernels.composed_sizes import compose_sizes
from kernelllm.compiler.emit.kernels.readable_names import block_names, fresh_name, operator_words, suggested_name, value_names
from kernelllm.compiler.emit.kernels.rounded_values import InFloat32, stored_at_once, stored_too
from kernelllm.core.text import syntax_tree

_ROLES = {"xnumel": "n_rows", "ynumel": "n_groups", "znumel": "n_planes", "r0_numel": "n_cols", "r1_numel": "n_inner"}

_STORED = {
    "welford_along": ("mean", "m2", "count"), "softmax_along": ("largest", "total"), "argmax_along": ("largest", "argmax"),
    "argmin_along": ("smallest", "argmin"),
}  # fmt: skip
_FEW_VALUES = 3
"""Of a size that is known: for so many a kernel is compiled for each."""


@dataclass
class LaunchValues:
    """One launch: what it passes, by Inductor's argument name."""

    buffers: dict[str, str]
    """Pointer argument to the host expression (a buffer's final name, ``x``, ``self.weight``)."""
    sizes: dict[str, Any]
    """Size argument to a sympy expression over the file's size names."""
    half: set[str] = field(default_factory=set)
    """Pointer arguments whose buffers may be of half precision, which the kernel reads as float32."""


@dataclass
class KernelText:
    """A kernel ready to print."""

    name: str
    text: str
    order: list[str]
    """Inductor's names of the arguments that a launch passes, in order; merged ones left out."""
    names: dict[str, str]
    """Inductor's argument name to the file's."""
    helpers: set[str] = field(default_factory=set)


def suggested_buffer_names(cleaned: Cleaned) -> dict[str, str]:
    """For each output pointer, what to call the buffer: after the value that is stored."""
    made: dict[str, ast.expr] = {}
    tuples: dict[str, str] = {}
    for statement in every(cleaned.body):
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                made[target.id] = statement.value
            elif isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Call):
                wishes = _STORED.get(name_of(statement.value.func), ())
                for element, wish in zip(target.elts, wishes, strict=False):
                    if isinstance(element, ast.Name):
                        tuples[element.id] = wish
    found: dict[str, str] = {}
    for statement in every(cleaned.body):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and name_of(statement.value.func) == "tl.store":
            pointer = next(n.id for n in ast.walk(statement.value.args[0]) if isinstance(n, ast.Name))
            value = statement.value.args[1]
            while isinstance(value, ast.Subscript):
                value = value.value
            if isinstance(value, ast.Name):
                if value.id in tuples:
                    found[pointer] = tuples[value.id]
                    continue
                value = made.get(value.id, value)
                while isinstance(value, ast.Subscript):
                    value = value.value
                if isinstance(value, ast.Name) and value.id in tuples:
                    found[pointer] = tuples[value.id]
                    continue
            wish = suggested_name(value, {}, False)
            if wish in ("total", "largest", "smallest", "product", "any_true", "rstd"):
                found[pointer] = wish
    return found


def to_text(
    cleaned: Cleaned, name: str, calls: list[LaunchValues], chosen: LaunchConfig, varies: Callable[[Any], bool]
) -> KernelText:  # fmt: skip
    """Name arguments and values, and print the function.

    Sizes for which ``varies`` holds are ordinary arguments, so that a new batch size compiles nothing anew; the module's own sizes are
    constants.
    """
    taken: set[str] = {name, *cleaned.helpers}
    fixed = dict(block_names(cleaned))
    taken |= set(fixed.values())
    compose_sizes(cleaned, calls)
    pointers, merged = _pointers(cleaned, calls, taken)
    sizes = _sizes(cleaned, calls, taken)
    fixed.update(pointers)
    fixed.update(sizes)
    fixed.update({p: p for p in cleaned.params if p.endswith("BLOCK") and p not in fixed})
    names = value_names(cleaned, fixed, pointers)
    combines = _combines(cleaned, name, taken)
    names.update({c.inductor_name: c.name for c in combines})
    half = {p for call in calls for p in call.half}
    stored = stored_too(cleaned, half | {p for p in cleaned.pointers if cleaned.kernel.signature.get(p) in ("*fp16", "*bf16")})
    body, moved = stored_at_once(fresh(cleaned.body), stored)
    converted = InFloat32(half, {value: pointer for value, pointer in stored.items() if value not in moved})
    body = [Rename(names).visit(converted.visit(s)) for s in body]
    known = set(sizes.values())
    body = indices.without_idle_remainders(indices.regrouped(body, known))
    body = indices.named(
        body, known | set(fixed.values()) - {"row", "rows", "cols", "offsets", "xs", "ys", "zs"}, set(names.values()) | taken
    )
    order: list[str] = []
    seen: set[str] = set()
    for param in cleaned.params:
        if not param.endswith("BLOCK") and fixed[param] not in seen and param not in merged:
            order.append(param)
            seen.add(fixed[param])
    blocks = [p for p in cleaned.params if p.endswith("BLOCK")]
    varying = [p for p in order if p not in pointers and any(varies(call.sizes[p]) for call in calls)]
    plain = {p for p in order if p in pointers or p in varying or _many(p, cleaned, calls)}
    arguments = [fixed[p] + ("" if p in plain else ": tl.constexpr") for p in order] + [f"{fixed[b]}: tl.constexpr" for b in blocks]
    lines = [*_autotune(chosen, fixed, [sizes[p] for p in order if p in sizes], blocks), _jit(cleaned, calls, varying, fixed)]
    head = f"def {name}({', '.join(arguments)}):"
    lines += formatting.broken(head, formatting.WIDTH)
    note = _note(cleaned, name)
    if note:
        lines.append(f'    """{note}"""')
    body = _constants(body)
    lines.append(formatting.text(body, 4))
    text = "\n".join([*(c.text for c in combines), *lines])
    return KernelText(name, text, order, fixed, cleaned.helpers.union(*(c.helpers for c in combines)))


def _many(param: str, cleaned: Cleaned, calls: list[LaunchValues]) -> bool:
    """Whether launches pass so many whole numbers for a size that compiling for each would take long, as in the steps of a loop."""
    return cleaned.facts.types.get(param) == "size" and len({call.sizes[param] for call in calls}) > _FEW_VALUES


def _jit(cleaned: Cleaned, calls: list[LaunchValues], varying: list[str], names: dict[str, str]) -> str:
    """The decorator. Triton compiles anew where a size becomes 1, a multiple of 16, or neither: where several sizes vary, that is asked of
    the one that bounds neighbouring elements, and in elementwise kernels of one that it is a multiple of.
    """
    inner = "r0_numel" if cleaned.rows or cleaned.kernel.reduction_hint == "INNER" else "xnumel"
    kept = [p for p in varying if names[p] == names.get(inner)]
    if not cleaned.kernel.reduction_hint:
        kept = kept or varying[:1]
        divides = (p for p in varying if p not in kept and all(_is_multiple(c.sizes[kept[0]], c.sizes[p]) for c in calls))
        kept += itertools.islice(divides, 1)
    loose = [f'"{names[p]}"' for p in varying if p not in kept]
    return f"@triton.jit(do_not_specialize=[{', '.join(loose)}])" if loose and len(varying) > 1 else "@triton.jit"


def _is_multiple(value: Any, of: Any) -> bool:
    return bool(sympy.denom(sympy.cancel(value / of)) == 1)


@dataclass
class _Combine:
    """The function that a scan combines two values with."""

    inductor_name: str
    name: str
    text: str
    helpers: set[str]


def _combines(cleaned: Cleaned, kernel: str, taken: set[str]) -> list[_Combine]:
    """Combine functions that the kernel names, each as a Triton function of its own."""
    used = all_reads(cleaned.body)
    found = []
    for wanted, function in cleaned.kernel.combines.items():
        if not used[wanted]:
            continue
        plain = _PlainCalls()
        body = [plain.visit(s) for s in fresh(function.body)]
        name = fresh_name(f"{kernel.removesuffix('_kernel')}_combine", taken)
        arguments = {a.arg: re.sub(r"^arg(\d)_(\d)$", lambda m: f"{'ab'[int(m[1])]}{m[2]}", a.arg) for a in function.args.args}
        body = [Rename(arguments).visit(s) for s in body]
        head = f"@triton.jit\ndef {name}({', '.join(arguments.values())}):"
        found.append(_Combine(wanted, name, f"{head}\n{formatting.text(body, 4)}\n\n", plain.helpers))
    return found


class _PlainCalls(ast.NodeTransformer):
    """Inductor's helpers as the ones that a file has. ``helpers``: those that it needs."""

    def __init__(self) -> None:
        self.helpers: set[str] = set()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = name_of(node.func)
        plain = RENAMED.get(name) or plain_name(name)
        if plain in HELPERS:
            self.helpers.add(plain)
        node.func = integers.to_ast(plain)
        return node


_CONSTANTS = {
    0.7071067811865476: "SQRT_HALF", 0.7978845608028654: "SQRT_TWO_OVER_PI", 1.0507009873554805: "SELU_SCALE",
    1.7580993408473766: "SELU_SCALE_ALPHA", 1.6732632423543772: "SELU_ALPHA", 1.4426950408889634: "LOG2_E", 0.6931471805599453: "LN_2",
}  # fmt: skip


def _constants(body: list[ast.stmt]) -> list[ast.stmt]:
    """Well-known numbers by name, defined at the top of the kernel."""
    found: dict[str, float] = {}

    class Name(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.expr:
            name = _CONSTANTS.get(node.value) if isinstance(node.value, float) else None
            if name is None:
                return node
            found[name] = float(str(node.value))
            return ast.Name(name, ast.Load())

    body = [Name().visit(s) for s in body]
    return [*(syntax_tree(f"{n}: tl.constexpr = {v!r}").body[0] for n, v in found.items()), *body]


def _note(cleaned: Cleaned, name: str) -> str:
    """What is fused and how rows are shared out, where the kernel's name does not say it."""
    words = [w.replace("_", " ") for w in operator_words(cleaned.kernel.ops)]
    if sum(w.replace(" ", "_") not in name for w in words) < 2:
        return ""
    what = ", ".join(words[:8]) + (" ..." if len(words) > 8 else "")
    return f"{what[:1].upper()}{what[1:]}{': one row per program' if cleaned.rows else ''}."


def _autotune(chosen: LaunchConfig, names: dict[str, str], sizes: list[str], blocks: list[str]) -> list[str]:
    if not chosen.tuned:
        return []
    lines = ["@triton.autotune(", "    configs=["]
    for values, warps in chosen.tuned:
        inner = ", ".join(f'"{names[b]}": {v}' for b, v in values.items() if b in blocks)
        lines.append(f"        triton.Config({{{inner}}}, num_warps={warps}),")
    keys = ", ".join(f'"{s}"' for s in sizes)
    restored = ", ".join(f'"{names[p]}"' for p in chosen.restored if p in names)
    return [*lines, "    ],", f"    key=[{keys}],", *([f"    restore_value=[{restored}],"] if restored else []), ")"]


def _pointers(cleaned: Cleaned, calls: list[LaunchValues], taken: set[str]) -> tuple[dict[str, str], set[str]]:
    """A name for each pointer, after the buffer it gets; pointers that always get the same buffer become one."""
    names: dict[str, str] = {}
    merged: set[str] = set()
    by_buffers: dict[tuple[str, ...], str] = {}
    for param in cleaned.pointers:
        passed = tuple(call.buffers[param] for call in calls)
        if passed in by_buffers:
            names[param] = names[by_buffers[passed]]
            merged.add(param)
            continue
        by_buffers[passed] = param
        names[param] = fresh_name(_pointer_wish(param, passed) + "_ptr", taken)
    return names, merged


def _pointer_wish(param: str, passed: tuple[str, ...]) -> str:
    texts = {re.sub(r"\[(\d+)\]", r"_\1", p.removeprefix("self.")) for p in passed}
    if len(texts) == 1:
        text = texts.pop()
        parts = [p for p in text.split(".") if p]
        return parts[-1] if parts[-1] not in ("weight", "bias") or len(parts) == 1 else "_".join(parts[-2:])
    leaf = {re.sub(r"(_\d+)+$", "", t.rsplit(".", 1)[-1]) for t in texts}
    if len(leaf) == 1:
        only = leaf.pop()
        if only.isidentifier():
            return only
    return {"in": "in", "out": "out"}.get(param.split("_")[0], "x") + (re.sub(r"\D", "", param) if not param.startswith("out") else "")


def _sizes(cleaned: Cleaned, calls: list[LaunchValues], taken: set[str]) -> dict[str, str]:
    """A name for each size; sizes that are equal in every launch share one."""
    params = [p for p in cleaned.params if p not in cleaned.pointers and not p.endswith("BLOCK")]
    names: dict[str, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    pointwise = not any(p.startswith("R") for p in cleaned.params)
    for param in params:
        passed = tuple(call.sizes[param] for call in calls)
        if passed in known and (len(set(passed)) > 1 or not passed[0].is_Integer):
            names[param] = known[passed]
            continue
        role = _ROLES.get(param, "")
        if pointwise and param == "xnumel" and "YBLOCK" not in cleaned.params:
            role = "n_elements"
        elif pointwise:
            role = {"xnumel": "n_x", "ynumel": "n_y", "znumel": "n_z"}.get(param, "")
        wish = _size_wish(passed, role)
        names[param] = known[passed] = fresh_name(wish, taken)
    return names


def _size_wish(passed: tuple[Any, ...], role: str) -> str:
    if len(set(passed)) == 1:
        value = passed[0]
        if value.is_Symbol:
            return str(value) if str(value).isidentifier() else "factor"
        if role:
            return role
        symbols = sorted(str(s) for s in value.free_symbols)
        if value.is_Mul and len(symbols) == 2 and all(a.is_Symbol for a in value.args):
            return "_x_".join(str(a) for a in value.args)
        if value.has(integer_text.FLOORDIV):
            return "chunk" if value.func is integer_text.FLOORDIV and value.args[1].is_Integer else "size"
        if value.is_Mul and len(symbols) > 2:
            return "n_total"
        if len(symbols) == 1:
            return f"{symbols[0]}_out"
    return role or ("factor" if any(v.is_Symbol and not str(v).isidentifier() for v in passed) else "size")


__all__ = ["KernelText", "LaunchValues", "suggested_buffer_names", "to_text"]
