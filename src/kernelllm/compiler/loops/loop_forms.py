"""Normal form of loops: a counter over ``range``, and results that are appended to a list and stacked behind the loop.

Modules write them in others as well: over ``x.unbind(1)``, ``zip`` or ``enumerate`` of such, and into slices of a tensor that is filled.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import free_name
from kernelllm.compiler.loops.end_steps import with_choices, with_tensors
from kernelllm.compiler.loops.filled_states import with_states_of_filled
from kernelllm.compiler.loops.reversed_loops import from_the_first, from_zero, is_call, with_appended_lists, with_plain_order
from kernelllm.compiler.loops.several_loops import with_later_loops_apart
from kernelllm.compiler.loops.tuple_states import with_names_for_elements
from kernelllm.core.text import syntax_tree

Statements = list[ast.stmt]
_MADE = {"empty", "zeros", "ones", "full"}


def with_one_form(before: Statements, loop: ast.For, after: Statements) -> tuple[Statements, ast.For, Statements]:
    """The statements in that form, as far as they can be brought to it."""
    text = [ast.unparse(_without_type(s)) for s in (*before, loop, *after)]
    before, new, after = (syntax_tree("\n".join(part)).body for part in (text[: len(before)], [text[len(before)]], text[len(before) + 1 :]))
    before = [single for statement in before for single in single_assignments(statement)]
    if any(isinstance(s, ast.For) for s in after):
        before, after = with_later_loops_apart(before, new[0], after)
    before, made, after = with_names_for_elements(before, new[0], after)
    made.body = [single for statement in made.body for single in _one_by_one(statement)]
    made.iter, backwards = with_plain_order(made.iter)
    counted: Any = _counted(made, {n for s in (*before, *new, *after) for n in names(s)})
    before, after = with_states_of_filled(before, counted, after)
    _name_lists_apart(before, counted, after)
    after = with_appended_lists(before, counted, after)
    before = with_choices(before, counted)
    if backwards and (turned := from_the_first(before, counted, after)) is not None:
        before, after = turned
    elif backwards:
        counted.iter = ast.Call(ast.Name("reversed", ast.Load()), [counted.iter], [])
    if (moved := from_zero(before, counted, after)) is not None:
        before, after = moved
    for statement in list(counted.body):
        filled = _filled(before, counted, after, statement)
        if filled is not None:
            before, after = filled
    before = with_tensors(before, counted)
    return [*before, *_compared(before, counted)], counted, after


def _without_type(statement: ast.stmt) -> ast.stmt:
    """``ys: list[torch.Tensor] = []`` without what it says of the type."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return ast.copy_location(ast.Assign([statement.target], statement.value), statement)
    return statement


def _compared(before: Statements, loop: Any) -> Statements:
    """Statements that compare all counts at once with what the loop compares its counter with (``t < lengths``), of which it takes rows."""
    over, target = loop.iter, loop.target
    if not isinstance(target, ast.Name) or not is_call(over, "range") or len(over.args) > 2:
        return []
    changed = {n for s in loop.body for n in stored(s)} | {target.id}
    decides = {id(c) for s in loop.body for n in ast.walk(s) if isinstance(n, ast.If | ast.IfExp | ast.While) for c in ast.walk(n.test)}
    plain = {n for s in before if isinstance(s, ast.Assign) and not isinstance(s.value, ast.Call) for n in stored(s)}  # sizes among them
    made: dict[str, tuple[str, str]] = {}

    class Rows(ast.NodeTransformer):
        def visit_Compare(self, node: ast.Compare) -> Any:
            sides = [node.left, *node.comparators]
            others = [e.id for e in sides if isinstance(e, ast.Name) and e.id != target.id]
            if len(sides) != 2 or len(others) != 1 or target.id not in map(ast.unparse, sides) or id(node) in decides:
                return self.generic_visit(node)
            if others[0] in changed | plain:
                return node
            name = made.setdefault(ast.unparse(node), (f"{others[0]}_compared{len(made) or ''}", others[0]))[0]
            return syntax_tree(f"{name}[{target.id}]", mode="eval").body

    loop.body = [Rows().visit(s) for s in loop.body]
    stop = ast.unparse(over.args[-1])
    found = []
    for text, (name, other) in made.items():
        counts = f"torch.arange({stop}, device={other}.device).view(-1, *[1] * {other}.dim())"
        compared = syntax_tree(text, mode="eval").body
        sides = [counts if ast.unparse(e) == target.id else ast.unparse(e) for e in (compared.left, compared.comparators[0])]  # type: ignore[attr-defined]
        operator = ast.unparse(compared).removeprefix(ast.unparse(compared.left)).removesuffix(ast.unparse(compared.comparators[0]))  # type: ignore[attr-defined]
        found += syntax_tree(f"{name} = {sides[0]}{operator}{sides[1]}").body
    return found


def _name_lists_apart(before: Statements, loop: Any, after: Statements) -> None:
    """A list whose name is set again behind the loop, to what is stacked of it, gets a name of its own; in place."""
    made = [s for s in before if isinstance(s, ast.Assign) and isinstance(s.value, ast.List)]
    taken = {n for s in (*before, loop, *after) for n in names(s)}
    for name in dict.fromkeys(n for s in made for n in stored(s)):
        at = next((i for i, s in enumerate(after) if name in stored(s)), None)
        if at is None or not isinstance(after[at], ast.Assign) or sum(name in stored(s) for s in before) != 1:
            continue
        new = free_name(f"{name}_steps", taken)
        for where in (*before, loop, *after[:at], after[at].value):  # type: ignore[attr-defined]
            for node in ast.walk(where):
                if isinstance(node, ast.Name) and node.id == name:
                    node.id = new


def _one_by_one(statement: ast.stmt) -> Statements:
    """``out[t] = last = value`` as a statement for each target, a name first."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) < 2:
        return [statement]
    first = next((t for t in statement.targets if isinstance(t, ast.Name)), None)
    if first is None:
        return [statement]
    others = [f"{ast.unparse(t)} = {first.id}" for t in statement.targets if t is not first]
    return syntax_tree("\n".join([f"{first.id} = {ast.unparse(statement.value)}", *others])).body


def single_assignments(statement: ast.stmt) -> Statements:
    """``states, out = zeros, []`` as a statement for each name."""
    target: Any = statement.targets[0] if isinstance(statement, ast.Assign) else None
    value: Any = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or len(target.elts) != len(value.elts):
        return [statement]
    if not any(isinstance(v, ast.List | ast.Constant) for v in value.elts) or set(stored(target)) & names(value):
        return [statement]
    return [syntax_tree(f"{ast.unparse(t)} = {ast.unparse(v)}").body[0] for t, v in zip(target.elts, value.elts, strict=True)]


def _counted(loop: Any, taken: set[str]) -> Any:
    """The loop with a counter over ``range``, and what it goes over as slices at the counter."""
    over, targets = loop.iter, [loop.target]
    counter = next(f"t{'_' * i}" for i in range(len(taken) + 1) if f"t{'_' * i}" not in taken)
    if is_call(over, "enumerate") and len(over.args) == 1 and isinstance(loop.target, ast.Tuple) and len(loop.target.elts) == 2:
        if not isinstance(loop.target.elts[0], ast.Name):
            return loop
        over, counter, targets = over.args[0], loop.target.elts[0].id, [loop.target.elts[1]]
    sources = [over]
    if is_call(over, "zip") and not over.keywords and isinstance(targets[0], ast.Tuple):
        sources, targets = over.args, targets[0].elts
    parts = [_unbound(source) for source in sources]
    if len(sources) != len(targets) or None in parts or not all(isinstance(t, ast.Name) for t in targets):
        return loop
    if len({name for name, _ in parts} | {t.id for t in targets}) != len(sources) * 2:  # type: ignore[misc]
        return loop
    slices = [f"{t.id} = {name}[{':, ' * dim}{counter}]" for t, (name, dim) in zip(targets, parts, strict=True)]  # type: ignore[misc]
    name, dim = parts[0]  # type: ignore[misc]
    body = "\n".join([*slices, *map(ast.unparse, loop.body)]).replace("\n", "\n    ")
    return syntax_tree(f"for {counter} in range({name}.shape[{dim}]):\n    {body}").body[0]


def _unbound(node: Any) -> tuple[str, int] | None:
    """The tensor and the dimension that ``x.unbind(dim)`` goes over."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "unbind":
        return None
    given = [*node.args, *(k.value for k in node.keywords if k.arg == "dim")]
    if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"):
        given.insert(0, node.func.value)
    dim = given[1] if len(given) > 1 else ast.Constant(0)
    known = isinstance(given[0], ast.Name) and isinstance(dim, ast.Constant) and isinstance(dim.value, int) and dim.value >= 0
    return (given[0].id, dim.value) if known and len(given) <= 2 else None  # type: ignore[attr-defined]


def _filled(before: Statements, loop: Any, after: Statements, statement: ast.stmt) -> tuple[Statements, Statements] | None:
    """The statements around the loop where ``out[:, t] = value`` in it, now an append, fills a tensor that nothing else touches."""
    target: Any = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Subscript) or not isinstance(loop.target, ast.Name):
        return None
    counter = loop.target.id
    made: list[Any] = [s for s in before if isinstance(s, ast.Assign) and stored(s) == [ast.unparse(target.value)]]
    if len(made) != 1:
        return None
    out, items = stored(made[0])[0], [ast.unparse(i) for i in getattr(target.slice, "elts", [target.slice])]
    if items.count(counter) != 1 or set(items[: items.index(counter)]) - {":"} or set(items[items.index(counter) + 1 :]) - {":", "..."}:
        return None
    dim, rest = items.index(counter), [s for s in (*before, *loop.body) if s not in (made[0], statement)]
    dtype, like = _dtype_where_filled(made[0].value, dim, loop, before), ""
    if dtype is None and (like := _filled_like(made[0], before, loop)):
        dtype = f"{like}.dtype"
    others = _Dtype(out, dtype)
    uses = sum(isinstance(n, ast.Name) and n.id == out for s in rest for n in ast.walk(s))
    if dtype is None or uses != sum(ast.unparse(n) == f"{out}.dtype" for s in rest for n in ast.walk(s) if isinstance(n, ast.Attribute)):
        return None
    at, kept = loop.body.index(statement), f"{out}_steps"
    loop.body[at] = syntax_tree(f"{kept}.append(({ast.unparse(loop.body[at].value)}).to({dtype}))").body[0]
    loop.body = [others.visit(s) for s in loop.body]
    start = [others.visit(s) for s in before if s is not made[0]]
    stacked = f"{out} = torch.stack({kept}, dim={dim})" + (f"\n{out} = {out}.view_as({like})" if like else "")
    return [*start, *syntax_tree(f"{kept} = []").body], [*syntax_tree(stacked).body, *after]


def _dtype_where_filled(value: Any, dim: int, loop: Any, before: Statements) -> str | None:
    """The dtype of a tensor made by ``value`` whose dimension ``dim`` is as long as the loop; None where that is not known."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or not is_call(loop.iter, "range"):
        return None
    if len(loop.iter.args) != 1:
        return None
    kind, steps = value.func.attr, lengths(loop.iter.args[0], before)
    given = {k.arg: ast.unparse(k.value) for k in value.keywords}
    on = ast.unparse(value.func.value)
    if kind.removesuffix("_like") in _MADE and kind.endswith("_like") and value.args:
        like = ast.unparse(value.args[0])
        along = f"{like}.shape[{dim}]" in steps or _read_along(like, dim, loop)
        return given.get("dtype", f"{like}.dtype") if along else None
    if kind.removeprefix("new_") not in _MADE or not value.args:
        return None
    first: Any = value.args[0]
    sizes = first.elts if isinstance(first, ast.Tuple | ast.List) else value.args
    if len(sizes) <= dim or any(isinstance(s, ast.Starred) for s in sizes) or not lengths(sizes[dim], before) & steps:
        return None
    return given.get("dtype", f"{on}.dtype" if kind.startswith("new_") else "torch.get_default_dtype()")


def _filled_like(made: Any, before: Statements, loop: Any) -> str:
    """``x`` of ``out = torch.empty_like(x)``, where it is the same behind the loop. That it is as long, a view behind the loop tells."""
    value = made.value
    if not isinstance(value, ast.Call) or not re.fullmatch(r"torch\.(empty|zeros|ones)_like\(\w+\)", ast.unparse(value)):
        return ""
    like = ast.unparse(value.args[0])
    later = [*before[before.index(made) + 1 :], *loop.body]
    return "" if any(like in stored(s) for s in later) else like


def _read_along(name: str, dim: int, loop: Any) -> bool:
    """Whether each step reads its own slice of a tensor, along that dimension."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == name:
            items = [ast.unparse(i) for i in getattr(node.slice, "elts", [node.slice])]
            if loop.target.id in items and "None" not in items[:dim] and items.index(loop.target.id) == dim:
                return True
    return False


def lengths(size: ast.expr, before: Statements) -> set[str]:
    """A size as it is written, and as ``x.shape[dim]`` where the statements say so."""
    text = ast.unparse(size)
    found = {text}
    if isinstance(size, ast.Call) and isinstance(size.func, ast.Attribute) and size.func.attr == "size" and len(size.args) == 1:
        found.add(f"{ast.unparse(size.func.value)}.shape[{ast.unparse(size.args[0])}]")
    for statement in before if isinstance(size, ast.Name) else ():
        if not isinstance(statement, ast.Assign) or text not in stored(statement):
            continue
        target: Any = statement.targets[0]
        if isinstance(target, ast.Name):
            found |= lengths(statement.value, [])
        elif isinstance(target, ast.Tuple) and (whole := _shape_of(statement.value)):
            found.add(f"{whole}.shape[{[ast.unparse(e) for e in target.elts].index(text)}]")
    return found


def _shape_of(value: ast.expr) -> str:
    """The tensor whose whole shape an expression is."""
    if isinstance(value, ast.Attribute) and value.attr == "shape":
        return ast.unparse(value.value)
    sized = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "size" and not value.args
    return ast.unparse(value.func.value) if sized else ""  # type: ignore[attr-defined]


class _Dtype(ast.NodeTransformer):
    """``out.dtype`` of a tensor that is no longer there."""

    def __init__(self, out: str, dtype: str | None) -> None:
        self.out, self.dtype = out, dtype

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if ast.unparse(node) == f"{self.out}.dtype" and self.dtype:
            return syntax_tree(self.dtype, mode="eval").body
        self.generic_visit(node)
        return node


__all__ = ["lengths", "single_assignments", "with_one_form"]
