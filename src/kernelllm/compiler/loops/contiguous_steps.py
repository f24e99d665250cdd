"""Tensors that a loop slices at its index are laid out once with the loop's dimension first, and unbound there.

A slice ``x[:, t]`` would be copied in every step, and each index costs the host as much as half a launch.
"""

from __future__ import annotations

import ast
import re

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import changed_by, free_name
from kernelllm.compiler.loops.body import STEP
from kernelllm.core.text import syntax_tree

_CALL = re.compile(rf"self\.(?:\w+_)?{STEP}")


def with_contiguous_steps(source: str) -> str:
    """The file with such tensors laid out ahead of its loops; other files as they are."""
    lines = source.splitlines()
    model = next(s for s in syntax_tree(source).body if isinstance(s, ast.ClassDef) and s.name == "ModelNew")
    edits: list[tuple[int, int, list[str]]] = []
    for method in [s for s in model.body if isinstance(s, ast.FunctionDef)]:
        taken = names(method) | {a.arg for a in method.args.args}
        for loop in [s for s in method.body if isinstance(s, ast.For) and isinstance(s.target, ast.Name)]:
            edits += _edits(loop, lines, taken, _taken_apart(method))
    for first, last, new in sorted(edits, key=lambda e: -e[0]):
        lines[first:last] = new
    return "\n".join(lines) + "\n"


def _taken_apart(method: ast.FunctionDef) -> set[str]:
    """Names of steps that an earlier call took apart: the file of one loop becomes a part of another's."""
    return {n for s in method.body if isinstance(s, ast.Assign) and ast.unparse(s.value).endswith(".unbind(0)") for n in stored(s)}


def _edits(loop: ast.For, lines: list[str], taken: set[str], apart: set[str]) -> list[tuple[int, int, list[str]]]:
    """Lines that change: from, to, and the new ones."""
    call = loop.body[0].value if isinstance(loop.body[0], ast.Assign) else None
    if not isinstance(call, ast.Call) or not _CALL.fullmatch(ast.unparse(call.func)):
        return []
    changed, counter = changed_by(loop), ast.unparse(loop.target)
    made: dict[tuple[str, int], str] = {}
    """Names for tensors taken apart, by the tensor (``x``, ``x[:, :, None]``, ``x[..., :, None]``) and the dimension of the steps."""
    for node in call.args:
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or node.value.id in changed | apart:
            continue
        items = [ast.unparse(i) for i in getattr(node.slice, "elts", [node.slice])]
        if items.count(counter) == 1 and {*items} <= {counter, ":", "None", "..."}:
            at = items.index(counter)
            at -= len(items) if "..." in items[:at] else 0  # counted from the end
            whole = f"{node.value.id}[{', '.join(':' if i == counter else i for i in items)}]" if "None" in items else node.value.id
            key = (whole, at)
            if key not in made:
                made[key] = free_name(f"{node.value.id}_steps", taken)
            node.value = ast.Name(made[key], ast.Load())
            node.slice = ast.Name(counter, ast.Load())
    if not made:
        return []
    first = loop.lineno - 1
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    laid = {(of, at): f"{of}.movedim({at}, 0).contiguous()" if at else of for of, at in made}
    ahead = [f"{indent}{name} = {laid[key]}.unbind(0)" for key, name in made.items()]
    statement = loop.body[0]
    text = [f"{indent}    {line}" for line in ast.unparse(statement).splitlines()]
    return [(statement.lineno - 1, statement.end_lineno or 0, text), (first, first, ahead)]


__all__ = ["with_contiguous_steps"]
