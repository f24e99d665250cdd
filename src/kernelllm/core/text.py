"""Text of candidates and models: made safe to show, and parsed from any thread."""

from __future__ import annotations

import ast
import os
import threading
from typing import Literal, cast, overload

_LOCK = threading.RLock()
_TRIES = 10
LARGEST = 2_000_000
"""Characters. Parsing takes a second and a gigabyte for each million lines; no kernel and no module is that long."""
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_BIDIRECTIONAL = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_REMOVED = {code: None for code in (*_CONTROLS, *_BIDIRECTIONAL) if chr(code) not in "\n\t"}
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
_TABLE: dict[int, str | None] = {**_REMOVED, **_SURROGATES}


def printable(text: str) -> str:
    """``text`` without what a terminal obeys or cannot show: control characters (newlines and tabs stay), changes of the direction of
    writing, and halves of surrogate pairs."""
    return text if text.isascii() and text.isprintable() else text.translate(_TABLE)


def _renew_lock() -> None:
    global _LOCK
    _LOCK = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)  # another thread may hold it while this one forks


@overload
def syntax_tree(text: str, mode: Literal["exec"] = "exec") -> ast.Module: ...


@overload
def syntax_tree(text: str, mode: Literal["eval"]) -> ast.Expression: ...


def syntax_tree(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """``ast.parse``, one thread at a time.

    Before Python 3.13, threads that build trees at the same time share a count of their depth, and one of them can fail with
    SystemError ("recursion depth mismatch"). Libraries do not take this lock, so such a failure is tried again. Raises what
    ``ast.parse`` raises: SyntaxError, ValueError, RecursionError, MemoryError.
    """
    if len(text) > LARGEST:
        raise ValueError(f"it has {len(text) / 1e6:.1f} million characters, and {LARGEST / 1e6:g} million are allowed")
    for _ in range(_TRIES):
        try:
            with _LOCK:
                return cast("ast.Module | ast.Expression", ast.parse(text, mode=mode))
        except SystemError:
            continue
    raise RecursionError("The source could not be parsed.")


def without_comments(text: str) -> str:
    """The same program in the syntax tree's own layout, with no comments and no docstrings; the text as it is where it does not parse."""
    try:
        tree = syntax_tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body
            if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str):
                node.body = body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])
    return ast.unparse(tree)
