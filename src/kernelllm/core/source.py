"""Python source to its syntax tree, from any thread."""

from __future__ import annotations

import ast
import threading
from typing import Literal, cast, overload

_LOCK = threading.Lock()
_TRIES = 10
LARGEST = 2_000_000
"""Characters. Parsing takes a second and a gigabyte for each million lines; no kernel and no module is that long."""


@overload
def parse(text: str, mode: Literal["exec"] = "exec") -> ast.Module: ...


@overload
def parse(text: str, mode: Literal["eval"]) -> ast.Expression: ...


def parse(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
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
