"""Launches of one kernel that do not wait for each other become one launch, on the path for known sizes.

The parts of a concatenation, the norms of many bands or the keys and values of a step are small kernels of the same text: each costs a
launch of its own, 3 to 5 us, which is more than its work. One launch has a second axis that tells whose tensors and numbers a program
takes.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelllm.compiler.emit import formatting
from kernelllm.compiler.emit.kernels.kernel_text import KernelText
from kernelllm.compiler.emit.kernels.readable_names import fresh_name
from kernelllm.compiler.emit.launch_code import LaunchWriter, WrittenLaunch
from kernelllm.compiler.emit.moved_steps import Order
from kernelllm.compiler.inductor.wrapper_lines import Launch
from kernelllm.core.text import syntax_tree

if TYPE_CHECKING:
    from kernelllm.compiler.emit.graph_code import GraphCode

_PROGRAMS = 2048
"""Programs up to which a launch counts as small."""
_ARGUMENTS = 96
"""Tensors of one launch: the host looks at each."""


@dataclass
class _PrintedLaunch:
    """A launch as it would be printed."""

    launch: Launch
    pointers: dict[str, str]
    """Names of arguments to texts of tensors."""
    values: dict[str, ast.expr]
    """The same to the expressions for them."""
    numbers: dict[str, str]
    grid: int
    blocks: dict[str, str]
    warps: int


@dataclass
class _LaunchGroup:
    calls: list[_PrintedLaunch] = field(default_factory=list)
    later: bool | None = None
    """Whether all go to the place of the last one, or to that of the first."""


def join(code: GraphCode, taken: set[str]) -> None:
    """Rewrite the steps of a path, in place. ``taken``: names at the top of the file."""
    order = Order(code.program)
    groups: dict[Any, list[_LaunchGroup]] = {}
    for item in list(code.program.items):
        if not isinstance(item, Launch) or isinstance(item, WrittenLaunch) or id(item) in code.prepared.steps:
            continue
        call = _printed(code, item)
        if call is None:
            continue
        text = code.kernels.texts[item.kernel]
        mine = groups.setdefault((text.name, call.grid, tuple(call.blocks.items()), call.warps, tuple(call.numbers)), [])
        group = mine[-1] if mine else None
        if group is None or not _takes(order, group, call):
            mine.append(_LaunchGroup([call]))
    made: dict[tuple[str, str], str] = {}
    for group in [g for some in groups.values() for g in some if len(g.calls) > 1]:
        _write(code, order, group, made, taken)
    code.program.items = order.items
    launched = {i.kernel for i in code.program.items if isinstance(i, Launch)}
    code.kernels.texts = {k: t for k, t in code.kernels.texts.items() if k in launched}


def _takes(order: Order, group: _LaunchGroup, call: _PrintedLaunch) -> bool:
    """Add a launch to a group, where all may run at once at the place of the last or of the first."""
    members = [c.launch for c in group.calls]
    distinct = {t for c in [*group.calls, call] for t in c.pointers.values()}
    if len(distinct) > _ARGUMENTS or any(order.conflict(m, call.launch) for m in members):
        return False
    for later in (True, False):
        if group.later in (None, later) and order.together(members, call.launch, later=later):
            group.calls.append(call)
            group.later = later
            return True
    return False


def _printed(code: GraphCode, launch: Launch) -> _PrintedLaunch | None:
    """A small launch over one axis whose numbers are written out."""
    lines = LaunchWriter(code.kernels, set(code.local)).lines(launch)
    text, cleaned = code.kernels.texts[launch.kernel], code.kernels.cleaned[launch.kernel]
    call: Any = syntax_tree(lines[-1], mode="eval").body
    settings = {k.arg: k.value for k in call.keywords}
    grid = call.func.slice
    if len(lines) > 1 and isinstance(grid, ast.Name):
        grid = syntax_tree(lines[0].partition(" = ")[2], mode="eval").body
    elif len(lines) > 1:
        return None
    tuned = code.kernels.configs[launch.kernel].tuned
    if tuned:
        blocks, warps = tuned[0]
        settings |= {text.names.get(b, b): ast.Constant(n) for b, n in blocks.items()} | {"num_warps": ast.Constant(warps)}
    given = dict(zip(text.order, call.args, strict=True))
    pointers = {text.names[p]: p for p in text.order if p in cleaned.pointers}
    numbers = {text.names.get(p, p): ast.unparse(v) for p, v in given.items() if p not in cleaned.pointers}
    extent = _extent(grid, settings)
    warps = getattr(settings.pop("num_warps", None), "value", 4)
    plain = all(_is_number(n) for n in numbers.values()) and all(isinstance(v, ast.Constant) for v in settings.values())
    if extent is None or extent > _PROGRAMS or not plain:
        return None
    return _PrintedLaunch(
        launch, {n: ast.unparse(given[p]) for n, p in pointers.items()}, {n: launch.arguments[p] for n, p in pointers.items()}, numbers,
        extent, {str(k): ast.unparse(v) for k, v in settings.items()}, warps,
    )  # fmt: skip


def _extent(grid: ast.expr, settings: dict[Any, ast.expr]) -> int | None:
    """How many programs a grid of one axis has."""
    meta = {k: v.value for k, v in settings.items() if isinstance(v, ast.Constant)}
    body = grid.body if isinstance(grid, ast.Lambda) else grid
    if not isinstance(body, ast.Tuple) or len(body.elts) != 1:
        return None
    return _whole(body.elts[0], meta)


def _whole(node: ast.expr, meta: dict[Any, Any]) -> int | None:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Subscript(value=ast.Name(id="meta"), slice=ast.Constant(value=name)):
            return meta.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            found = _whole(inner, meta)
            return None if found is None else -found
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right) | ast.Call(func=ast.Attribute(attr="cdiv"), args=[left, right]):
            a, b = _whole(left, meta), _whole(right, meta)
            if a is None or not b:
                return None
            return a // b if isinstance(node, ast.BinOp) else -(-a // b)
    return None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _write(code: GraphCode, order: Order, group: _LaunchGroup, made: dict[tuple[str, str], str], taken: set[str]) -> None:
    """One launch in the place of a group's."""
    first, kernels = group.calls[0], code.kernels
    old = kernels.texts[first.launch.kernel]
    arguments: dict[str, ast.expr] = {}
    names: dict[str, list[str]] = {}
    for name in first.pointers:
        texts = list(dict.fromkeys(c.pointers[name] for c in group.calls))
        given = {t: name if len(texts) == 1 else f"{name}_{i}" for i, t in enumerate(texts)}
        names[name] = [given[c.pointers[name]] for c in group.calls]
        arguments |= {given[c.pointers[name]]: c.values[name] for c in group.calls}
    numbers = {n: [c.numbers[n] for c in group.calls] for n in first.numbers}
    function = _merged(old.text, names, numbers)
    if function is None:
        return
    text = formatting.text([function])
    key = f"{first.launch.kernel} of {len(made)}"
    plain = (old.name, text)
    if plain not in made:
        name = fresh_name(f"{old.name.removesuffix('_kernel')}_of_{len(group.calls)}_kernel", taken)
        function.name = name
        made[plain] = key
        kernels.texts[key] = KernelText(name, formatting.text([function]), [*arguments], {a: a for a in arguments}, old.helpers)
    key = made[plain]
    settings = ", ".join([*(f"{k}={v}" for k, v in first.blocks.items()), f"num_warps={first.warps}"])
    grid = f"({first.grid}, {len(group.calls)})"
    launch = WrittenLaunch(key, arguments, kernels.texts[key].name, grid, [], settings)
    order.replace([c.launch for c in group.calls], launch, later=bool(group.later))


def _merged(text: str, names: dict[str, list[str]], numbers: dict[str, list[str]]) -> ast.FunctionDef | None:
    """The kernel that takes its tensors and numbers by the second axis of its programs."""
    function = next(s for s in syntax_tree(text).body if isinstance(s, ast.FunctionDef))
    varying = {n for n, values in numbers.items() if len(set(values)) > 1}
    shapes = [n for n in ast.walk(function) if isinstance(n, ast.Call) and ast.unparse(n.func) in ("tl.arange", "tl.full", "tl.zeros")]
    if any(isinstance(n, ast.Name) and n.id in varying for s in shapes for n in ast.walk(s)):
        return None
    if any(isinstance(n, ast.Attribute) and n.attr in ("num_programs", "static_range", "reshape") for n in ast.walk(function)):
        return None
    if any(ast.unparse(n) == "tl.program_id(1)" for n in ast.walk(function)):
        return None
    part = fresh_name("part", {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} | {*names, *numbers})
    lines = [f"{part} = tl.program_id(1)"]
    for name, values in (names | numbers).items():
        if name in names and len(set(values)) == 1:
            continue
        lines.append(f"{name} = {values[0]}")
        if len(set(values)) > 1:
            lines += [f"{name} = tl.where({part} == {i}, {v}, {name})" for i, v in enumerate(values) if i and v != values[0]]
    start = 1 if ast.get_docstring(function) is not None else 0
    function.body[start:start] = syntax_tree("\n".join(lines)).body
    blocks = [a for a in function.args.args if a.arg not in names and a.arg not in numbers]
    function.args.args = [*(ast.arg(n) for n in dict.fromkeys(n for some in names.values() for n in some)), *blocks]
    function.decorator_list = [d for d in function.decorator_list if "autotune" not in ast.unparse(d)]
    for at, decorator in enumerate(function.decorator_list):
        if isinstance(decorator, ast.Call):
            function.decorator_list[at] = decorator.func
    return function


__all__ = ["join"]
