"""Loops in a problem's text become calls of :func:`loop_function.run`: while it is traced, they are operators then."""

from __future__ import annotations

import ast
import re
import textwrap
from typing import Any

import msgspec

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import NamesReplaced, free_name
from kernelllm.compiler.loops.body import STEP, OutlinedLoop, Outliner
from kernelllm.compiler.loops.loop_forms import single_assignments, with_one_form
from kernelllm.compiler.recurrences.slices_in_turn import (
    LOOPS,
    Count,
    count_of,
    with_last_elements,
    with_states_of_slices,
    with_tables,
)
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem

_MODES = {"torch.enable_grad()": "True", "torch.no_grad()": "False", "torch.inference_mode()": "False"}
_RANGE = re.compile(r"torch\.arange\([^()]*(\([^()]*\)[^()]*)*\)(\[[^()]*\]|\.(view|unsqueeze)\([^()]*\))*")
_LEFT = "_what_is_left_to_steps"


def with_loop_operators(problem: Problem, fewest: int = 0) -> Problem | None:
    """The problem with calls in the place of its loops; None where it has none that can be one. ``fewest``: steps of such a loop."""
    try:
        tree = syntax_tree(problem.source)
    except SyntaxError:
        return None
    found = 0
    for cls in (s for s in tree.body if isinstance(s, ast.ClassDef)):
        methods = [s for s in cls.body if isinstance(s, ast.FunctionDef) and s.name != "__init__"]
        looping = {f"self.{m.name}" for m in methods if any(isinstance(n, ast.For) for n in ast.walk(m))}
        for method in methods:
            found += _changed(method, looping)
    if not found:
        return None
    source = ast.unparse(ast.fix_missing_locations(tree))
    return msgspec.structs.replace(problem, source=source.replace(_LEFT, f"{fewest}, {found > 1}"))


def _changed(method: ast.FunctionDef, looping: set[str]) -> int:
    """How many loops of a method have become calls; changes it. ``looping``: methods with loops, around which another loop stays."""
    if method.args.vararg or method.args.kwarg or not method.args.args or method.args.args[0].arg != "self":
        return 0
    body, count = _without_blocks(method.body), 0
    given = [a.arg for a in (*method.args.posonlyargs, *method.args.args[1:], *method.args.kwonlyargs)]
    done: list[ast.stmt] = []
    rest = body
    while (at := next((i for i, s in enumerate(rest) if isinstance(s, ast.For)), None)) is not None:
        loop: Any = rest[at]
        around = any(ast.unparse(n) in looping for n in ast.walk(loop) if isinstance(n, ast.Attribute))
        made = None if around else _called(given, [*done, *rest[:at]], loop, rest[at + 1 :], count)
        if made is None:
            done, rest = [*done, *rest[: at + 1]], rest[at + 1 :]
            continue
        done, rest, count = made[0], made[1], count + 1
    if count:
        method.body = [*syntax_tree(f"from kernelllm.compiler.recurrences import loop_function as {LOOPS}").body, *done, *rest]
    return count


def _without_blocks(body: list[ast.stmt]) -> list[ast.stmt]:
    """``with torch.enable_grad():`` around a loop as two calls."""
    found: list[ast.stmt] = []
    for i, s in enumerate(body):
        modes = [_MODES.get(ast.unparse(item.context_expr)) for item in s.items] if isinstance(s, ast.With) else []
        if isinstance(s, ast.With) and len(modes) == 1 and modes[0] and any(isinstance(inner, ast.For) for inner in s.body):
            ends = any(isinstance(n, ast.Return) for inner in s.body for n in ast.walk(inner))
            if not ends:
                before = syntax_tree(f"_mode_{i} = torch.is_grad_enabled()\ntorch.set_grad_enabled({modes[0]})").body
                found += [*before, *s.body, *syntax_tree(f"torch.set_grad_enabled(_mode_{i})").body]
                continue
        found.append(s)
    return found


def _called(
    given: list[str], before: list[ast.stmt], loop: ast.For, after: list[ast.stmt], number: int
) -> tuple[list[ast.stmt], list[ast.stmt]] | None:  # fmt: skip
    """The statements up to the call that stands for a loop, and those behind it."""
    try:
        loop = syntax_tree(ast.unparse(loop)).body[0]  # type: ignore[assignment]
        before = [single for statement in before for single in single_assignments(statement)]
        with_last_elements(before, loop)
        before = with_tables(before, loop)
        before, made, after = with_one_form(before, loop, after)
        before, after = with_states_of_slices(before, made, after)
    except Exception:  # noqa: BLE001 - a form that nobody thought of stays as it is
        return None
    count = count_of(made)
    if count is None:
        return None
    made.iter = syntax_tree(f"range({count.stop})", mode="eval").body
    before = _with_counts(before, made, count)
    _with_ranges(before, made)
    outlined = Outliner(given, before, made, after, inside=True, many=True).done()
    if outlined is None:
        return None
    return _LoopCall(outlined, count, number).statements(before, after)


def _with_ranges(before: list[ast.stmt], loop: Any) -> None:
    """Ranges that are made before the loop (``rows = torch.arange(n)``) as ranges that each step makes: so it shows what they are."""
    changed = {n for s in loop.body for n in stored(s)}
    for i, made in enumerate(before):
        later = {n for s in before[i + 1 :] for n in stored(s)} | changed
        match made:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in later and not names(value) & later:
                used = any(name in names(s) for s in loop.body)
                if used and _RANGE.fullmatch(ast.unparse(value)):
                    inner = NamesReplaced({name: f"{name}_in_step"})
                    loop.body = [*syntax_tree(f"{name}_in_step = {ast.unparse(value)}").body, *(inner.visit(s) for s in loop.body)]


def _with_counts(before: list[ast.stmt], loop: Any, count: Count) -> list[ast.stmt]:
    """The statements before a loop with all counts, where it has its counter elsewhere than as an index; changes the loop's body."""
    counter = count.counter
    counts = free_name(f"{counter}_counts", {n for s in (*before, loop) for n in names(s)})
    used = []

    class Counts(ast.NodeTransformer):
        def visit_Subscript(self, node: ast.Subscript) -> Any:
            node.value = self.visit(node.value)
            inside = isinstance(node.value, ast.Name) and counter in names(node.slice)
            if not inside:
                node.slice = self.visit(node.slice)
            return node

        def visit_Name(self, node: ast.Name) -> Any:
            if node.id != counter or not isinstance(node.ctx, ast.Load):
                return node
            used.append(node)
            return syntax_tree(f"{counts}[{counter}]", mode="eval").body

    loop.body = [Counts().visit(s) for s in loop.body]
    return [*before, *syntax_tree(f"{counts} = {LOOPS}.counts({count.stop})").body] if used else before


class _LoopCall:
    def __init__(self, outlined: OutlinedLoop, count: Count, number: int) -> None:
        self.outlined, self.counter, self.number = outlined, count.counter, number
        self.start, self.stop, self.backwards = count.start, count.stop, count.backwards

    def statements(self, before: list[ast.stmt], after: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.stmt]] | None:
        outlined = self.outlined
        call: Any = outlined.loop.body[0]
        results = [e.id for e in call.targets[0].elts]
        carried = dict(outlined.carried)
        sliced = {i: text for i, value in enumerate(outlined.values) if (text := self._slices(value)) is not None}
        if any(self.counter in names(syntax_tree(v)) for i, v in enumerate(outlined.values) if i not in sliced):
            return None
        fixed = [i for i in range(len(outlined.inputs)) if i not in carried and i not in sliced]
        if any(i in sliced for i in carried):
            return None
        handed = [results[r] for r in carried.values()]
        # what is set in a step and read behind the loop alone is as the last step leaves it
        more = [r for i, r in enumerate(results) if i not in carried.values()]
        lists = self._lists(outlined.loop.body[1:])
        if lists is None or not handed:
            return None
        last = [r for r in more if r not in lists]
        order = [outlined.inputs[i] for i in (*carried, *sliced, *fixed)]
        name = f"_step_{self.number}"
        text = "\n".join(ast.unparse(s) for s in outlined.body[:-1])
        back = ", ".join([*handed, *more])
        step = f"def {name}({', '.join(order)}):\n{textwrap.indent(text, '    ')}\n    return ({back},)"
        values = [", ".join(part) for part in (
            [outlined.inputs[i] for i in carried], list(sliced.values()), [outlined.values[i] for i in fixed])]  # fmt: skip
        given = ", ".join(f"[{v}]" for v in values)
        run = f"{back}, = {LOOPS}.run(self, {name}, ({self.stop}) - ({self.start}), {given}, {len(more)}, {_LEFT})"
        behind = [f"{r} = {r}[-1]" for r in last] + [f"{name} = {LOOPS}.grown({name}, {r})" for r, name in lists.items()]
        made = syntax_tree("\n".join([step, run, *behind])).body
        changed = [_Stacks(set(lists.values())).visit(s) for s in after]
        return [*before, *made], changed

    def _lists(self, kept: list[ast.stmt]) -> dict[str, str] | None:
        """The list that each result is appended to; None where a result goes elsewhere."""
        found = {}
        for statement in kept:
            value: Any = statement.value if isinstance(statement, ast.Expr) else None
            if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != "append":
                return None
            found[ast.unparse(value.args[0])] = ast.unparse(value.func.value)
        return found

    def _slices(self, value: str) -> str | None:
        """All slices that a step is given, with the steps in front."""
        node: Any = syntax_tree(value, mode="eval").body
        if not isinstance(node, ast.Subscript) or self.counter not in names(node.slice):
            return None
        back = ", backwards=True" if self.backwards else ""
        items = list(getattr(node.slice, "elts", [node.slice]))
        places = [i for i, item in enumerate(items) if self.counter in names(item)]
        at = items[places[0]]
        moved = self._moved(at)
        before = [ast.unparse(i) for i in items[: places[0]]]
        after = [ast.unparse(i) for i in items[places[0] + 1 :]]
        if len(places) != 1 or moved is None or any(isinstance(i, ast.Constant) and i.value is not None for i in items[: places[0]]):
            return None
        dim = sum(b != "None" for b in before) if "..." not in before else -1 - sum(a != "None" for a in after)
        index = ", ".join([":", *before, *after])
        return f"{LOOPS}.slices({ast.unparse(node.value)}, {dim}, ({self.start}){moved}, ({self.stop}){moved}{back})[{index}]"

    def _moved(self, at: ast.expr) -> str | None:
        match at:
            case ast.Name():
                return ""
            case ast.BinOp(left=ast.Name(id=name), op=ast.Add() | ast.Sub(), right=right) if name == self.counter:
                sign = "+" if isinstance(at.op, ast.Add) else "-"
                return f" {sign} ({ast.unparse(right)})" if self.counter not in names(right) else None
        return None


class _Stacks(ast.NodeTransformer):
    """``torch.stack(steps, 1)`` of lists that hold all steps at once."""

    def __init__(self, lists: set[str]) -> None:
        self.lists = lists

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        of_list = node.args and isinstance(node.args[0], ast.Name) and node.args[0].id in self.lists
        if of_list and ast.unparse(node.func) in ("torch.stack", "torch.cat"):
            node.func = syntax_tree(f"{LOOPS}.{ast.unparse(node.func).removeprefix('torch.')}ed", mode="eval").body
        return node


__all__ = ["STEP", "stored", "with_loop_operators"]
