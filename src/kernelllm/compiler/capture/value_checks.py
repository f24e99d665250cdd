"""Decisions on the values of tensors that only refuse: ``if torch.any(variance < 0): raise ...``. A trace takes the way that goes on."""

from __future__ import annotations

import ast
import linecache
import sys
from functools import lru_cache

SOURCE = "__source_of_problem__"
"""Under this name a problem's globals hold its text."""


def answer() -> bool | None:
    """The truth that the code which asks for it must find, where all that it does is raise: ``if torch.any(x < 0): raise ...``."""
    frame = sys._getframe(2)
    held = frame.f_globals.get(SOURCE)
    rows = held.splitlines(keepends=True) if held else linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    return _checked_at(tuple(rows), frame.f_lineno)


@lru_cache(maxsize=64)
def _checked_at(rows: tuple[str, ...], line: int) -> bool | None:
    try:
        tree = ast.parse("".join(rows))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.test.end_lineno or 0):
            return _plain(node.test, wanted=True)
        if isinstance(node, ast.If) and node.lineno <= line <= (node.test.end_lineno or 0):
            raises = len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse
            return _plain(node.test, wanted=False) if raises else None
    return None


def _plain(test: ast.expr, *, wanted: bool) -> bool | None:
    """What the tensor in the test must be for the test to be ``wanted``; None where the test holds more than one."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, wanted = test.operand, not wanted
    return None if isinstance(test, ast.BoolOp) else wanted


__all__ = ["answer"]
