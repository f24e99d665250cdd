"""Checks of a step's arguments run in the first call only; later steps get arguments of the same kind."""

from __future__ import annotations

import ast
import itertools
import re

from kernelllm.compiler.loops.body import STEP
from kernelllm.core.text import syntax_tree

_STEP = re.compile(rf"(?:\w+_)?{STEP}")
_CHECK = re.compile(r"(?:\w+_)?check")


def checked_once(source: str) -> str:
    """The file with such steps, where the loop over a range calls them; other files as they are."""
    model = next(s for s in syntax_tree(source).body if isinstance(s, ast.ClassDef) and s.name == "ModelNew")
    methods = {s.name: s for s in model.body if isinstance(s, ast.FunctionDef)}
    loops = [n for m in methods.values() for n in ast.walk(m) if isinstance(n, ast.For)]
    calls = {call.func.attr: (loop, call) for loop in loops if (call := _call(loop)) is not None}  # type: ignore[attr-defined]
    lines = source.splitlines()
    edits: list[tuple[int, int, list[str]]] = []
    for name in [n for n in methods if _STEP.fullmatch(n) and n in calls]:
        step, (loop, call) = methods[name], calls[name]
        start = _start(loop)
        groups = [list(group) for checks, group in itertools.groupby(step.body, _is_check) if checks]
        if start is None or not groups or source.count(f"self.{name}(") != 1:
            continue
        for group in groups:
            first, last = group[0].lineno - 1, group[-1].end_lineno or 0
            edits.append((first, last, ["        if first:", *(f"    {line}" for line in lines[first:last])]))
        last_argument = step.args.args[-1]
        at, column = last_argument.lineno - 1, last_argument.end_col_offset or 0
        edits.append((at, at + 1, [f"{lines[at][:column]}, first=True{lines[at][column:]}"]))
        at, column = (call.end_lineno or 0) - 1, (call.end_col_offset or 0) - 1
        head, tail = lines[at][:column], lines[at][column:]
        if head.strip():
            edits.append((at, at + 1, [f"{head}, first={start}{tail}"]))
        else:  # the bracket stands in a line of its own
            edits.append((at - 1, at + 1, [f"{lines[at - 1].rstrip(',')},", f"{head}    first={start}", f"{head}{tail}"]))
    for first, last, new in sorted(edits, key=lambda e: -e[0]):
        lines[first:last] = new
    return "\n".join(lines) + "\n"


def _call(loop: ast.For) -> ast.Call | None:
    """The call of a step that a loop's body begins with."""
    value = loop.body[0].value if isinstance(loop.body[0], ast.Assign) else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or ast.unparse(value.func.value) != "self":
        return None
    return value if _STEP.fullmatch(value.func.attr) and value.args else None


def _start(loop: ast.For) -> str | None:
    """How to ask whether a step is the first."""
    match loop:
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[_])):
            return f"not {name}"
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[start, _])):
            return f"{name} == {ast.unparse(start)}"
    return None


def _is_check(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return bool(_CHECK.fullmatch(name))
        case ast.If(body=[ast.Raise()], orelse=[]):
            return True
    return False


__all__ = ["checked_once"]
