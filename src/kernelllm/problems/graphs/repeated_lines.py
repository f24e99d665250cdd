"""Finds lines of a forward that repeat, but for names and numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelllm.core.text import syntax_tree
from kernelllm.problems.graphs import index_text

FEWEST = 6
"""Steps that are written as a loop."""
SAVED = 24
"""Lines that a loop saves at least."""
_LONGEST = 400
"""Lines of a step."""
_CONSTANT = frozenset({"self", "torch", "nn", "math", "float", "slice"})


@dataclass
class TextLine:
    """One statement, or a loop that was found before. ``slots``: names that it reads and whole numbers in it, in order."""

    text: str
    lines: list[str] = field(default_factory=list)
    key: str = ""
    slots: list[str | int] = field(default_factory=list)
    target: str = ""
    reads: list[str] = field(default_factory=list)
    """Names that it reads, in order."""

    def __post_init__(self) -> None:
        self.lines = self.lines or [self.text]
        statement = syntax_tree(self.text).body[0]
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            self.target = statement.targets[0].id
        if isinstance(statement, ast.Assign | ast.Expr):
            self.key = ("= " if self.target else "") + ast.dump(_Slotted(self.slots).visit(statement.value))
            self.reads = [slot for slot in self.slots if isinstance(slot, str)]
        else:
            self.key = f"{id(self)}"
            self.reads = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]

    def selects(self) -> bool:
        """Whether it takes one place of a dimension: a tensor, the dimension and the place are its slots."""
        return self.text.partition("= ")[2].startswith(f"{index_text.SELECT}(") and len(self.slots) == 3


class _Slotted(ast.NodeTransformer):
    """Puts one sign in place of each name and of each whole number."""

    def __init__(self, slots: list[str | int]) -> None:
        self.slots = slots

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in _CONSTANT:
            return node
        self.slots.append(node.id)
        return ast.Name("_", ast.Load())

    def visit_Constant(self, node: ast.Constant) -> Any:
        if type(node.value) is not int:
            return node
        self.slots.append(node.value)
        return ast.Constant(0)


class _Filled(ast.NodeTransformer):
    """Puts texts in the place of slots."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = iter(texts)

    def visit_Name(self, node: ast.Name) -> Any:
        return node if node.id in _CONSTANT else syntax_tree(next(self.texts), mode="eval").body

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node if type(node.value) is not int else syntax_tree(next(self.texts), mode="eval").body


def with_slots(line: TextLine, slots: Sequence[Any], target: str) -> str:
    """The text of a line with other names and numbers, under another target."""
    statement: Any = syntax_tree(line.text).body[0]
    statement.value = _Filled([str(slot) for slot in slots]).visit(statement.value)
    if target:
        statement.targets = [ast.Name(target, ast.Store())]
    return ast.unparse(ast.fix_missing_locations(statement))


def runs(keys: list[str]) -> list[tuple[int, int, int]]:
    """Where lines repeat: the first of them, lines of a step, and where that ends; those that save most come first."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    values = np.array([numbers[key] for key in keys])
    runs: list[tuple[int, int, int]] = []
    for period in range(1, min(len(keys) // FEWEST, _LONGEST) + 1):
        same = np.concatenate([[0], (values[:-period] == values[period:]).astype(np.int8), [0]])
        begins, ends = np.flatnonzero(np.diff(same) == 1), np.flatnonzero(np.diff(same) == -1)
        runs += [(int(a), period, int(b)) for a, b in zip(begins, ends, strict=True) if b - a >= period * (FEWEST - 1)]
    return sorted(runs, key=lambda run: (run[0] - run[2], run[1]))


def places(begin: int, period: int, end: int) -> Iterable[tuple[int, int]]:
    """Where a loop may begin in a run, and its steps. The first or the last may be another."""
    for shift in range(period):
        most = (end - begin - shift) // period + 1
        for left, steps in ((0, most), (0, most - 1), (1, most - 1)):
            if steps >= FEWEST and period * (steps - 1) >= SAVED:
                yield begin + shift + left * period, steps


__all__ = ["FEWEST", "SAVED", "TextLine", "places", "runs", "with_slots"]
