"""ATen's views as indexing: ``x[:, :, i, :n]`` for a select and a slice, ``x[:, i] = y`` for a copy into one."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from kernelllm.core.text import syntax_tree

SELECT = "torch.ops.aten.select.int"
_SLICE, _COPY = "torch.ops.aten.slice.Tensor", "torch.ops.aten.copy_.default"
_SAME = re.compile(r"torch\.ops\.aten\.((?:zeros|ones|empty|full)(?:_like)?|stack|cat)\.(?:default|memory_format)\(")
_END = 2**63 - 1


def with_plain_names(lines: list[str]) -> list[str]:
    """``torch.zeros(...)`` for ATen's operator of that name, also where tensors are joined; they have the same arguments."""
    return [_SAME.sub(r"torch.\1(", line) for line in lines]


@dataclass
class _View:
    base: str
    items: list[str]
    """Indices of the base's dimensions, as far as they are not whole."""

    def text(self) -> str:
        return f"{self.base}[{', '.join(self.items)}]"

    def names(self) -> set[str]:
        """The names that the view's text reads."""
        return {n.id for n in ast.walk(syntax_tree(self.text())) if isinstance(n, ast.Name)}

    def at(self, dim: int, item: str) -> _View | None:
        """This view, of a dimension of which only that is taken."""
        dims = [place for place, known in enumerate(self.items) if ":" in known]
        place = dims[dim] if dim < len(dims) else len(self.items) + dim - len(dims)
        items = [*self.items, *[":"] * (place + 1 - len(self.items))]
        if items[place] != ":":
            return None
        items[place] = item
        return _View(self.base, items)


def with_indices(lines: list[str], kept: set[str]) -> list[str]:
    """The lines, of one block, with such views as indices. Names in ``kept`` are read elsewhere."""
    statements: list[Any] = [syntax_tree(line).body[0] for line in lines]
    views: dict[str, _View] = {}
    found = []
    for statement in statements:
        call = statement.value
        name = ast.unparse(call.func) if isinstance(call, ast.Call) and not call.keywords else ""
        if name == _COPY and isinstance(statement, ast.Expr) and len(call.args) == 2 and (view := views.get(ast.unparse(call.args[0]))):
            found.append(f"{view.text()} = {ast.unparse(call.args[1])}")
            continue
        view = _view(name, call.args, views) if name in (SELECT, _SLICE) and isinstance(statement, ast.Assign) else None
        for target in _stored(statement):  # of what it was before, there may be views
            views = {n: v for n, v in views.items() if target not in (n, *v.names())}
        if view is not None:
            views[statement.targets[0].id] = view
            found.append(f"{statement.targets[0].id} = {view.text()}")
        else:
            found.append(ast.unparse(statement))
    return _without_unread(found, kept)


def _stored(statement: ast.stmt) -> list[str]:
    """Names that a statement sets."""
    return [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _view(name: str, args: list[ast.expr], views: dict[str, _View]) -> _View | None:
    """The view that such a call makes; None where it has no plain index."""
    dim = args[1] if len(args) > 1 else ast.Constant(0)
    if not isinstance(args[0], ast.Name) or not isinstance(dim, ast.Constant) or not isinstance(dim.value, int) or dim.value < 0:
        return None
    base = args[0].id
    known = views.get(base, _View(base, []))
    if name == SELECT:
        return known.at(dim.value, ast.unparse(args[2]))
    start, stop, step = [*(args[2:]), *[ast.Constant(None)] * 3][:3]
    ends = ["" if isinstance(e, ast.Constant) and e.value in (None, end) else ast.unparse(e) for e, end in ((start, 0), (stop, _END))]
    by = "" if isinstance(step, ast.Constant) and step.value in (None, 1) else f":{ast.unparse(step)}"
    return known.at(dim.value, f"{ends[0]}:{ends[1]}{by}")


def _without_unread(lines: list[str], kept: set[str]) -> list[str]:
    """The lines without views that only other views were made of."""
    found: list[str] = []
    read = set(kept)
    for line in reversed(lines):
        statement: Any = syntax_tree(line).body[0]
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id not in read and isinstance(statement.value, ast.Subscript):
            continue
        read |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and n is not target}
        found.append(line)
    return found[::-1]


__all__ = ["SELECT", "with_indices", "with_plain_names"]
