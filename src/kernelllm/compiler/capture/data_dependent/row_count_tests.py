"""Tests on the number of rows that were found, ``if top_x.shape[0] == 0: continue``: the trace goes on as if there were some.

What the module then does to no rows changes nothing. It has their positions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import sympy
import torch
from torch.fx.experimental import symbolic_shapes

from kernelllm.compiler.capture.data_dependent import host_row_counts
from kernelllm.compiler.capture.patching import patch

_OF_SIZES: dict[Any, tuple[int, bool]] = {
    sympy.Eq: (0, False), sympy.Ne: (0, True), sympy.Gt: (0, True), sympy.Ge: (1, True), sympy.Lt: (1, False), sympy.Le: (0, False),
}  # fmt: skip
_TURNED = {sympy.Gt: sympy.Lt, sympy.Ge: sympy.Le, sympy.Lt: sympy.Gt, sympy.Le: sympy.Ge}


def answer(stack: ExitStack, told: Callable[[], None] = lambda: None) -> None:
    """Until ``stack`` closes, such questions have an answer, which ``told`` is called for. Where a decision stands, torch does not see
    this file."""
    plain: Callable[[torch.SymBool], bool] = torch.SymBool.__bool__
    files = {*symbolic_shapes.uninteresting_files(), __file__}

    def truth(question: torch.SymBool) -> bool:
        found = _of_rows(question)
        if found is None:
            return plain(question)
        told()
        return found

    host_row_counts.read(stack)
    patch(stack, torch.SymBool, "__bool__", truth)
    patch(stack, symbolic_shapes, "uninteresting_files", lambda: files)


def split(_: Any, x: Any, sizes: Any, dim: int = 0) -> Any:
    """Numbers that were read off tensors and are the sizes of parts are numbers of rows."""
    if not any(isinstance(size, torch.Tensor) for size in sizes):
        return NotImplemented
    counts = [host_row_counts.number(size) if isinstance(size, torch.Tensor) else size for size in sizes[:-1]]
    return x.split_with_sizes(host_row_counts.lengths(x, counts, dim), dim)


def _of_rows(question: torch.SymBool) -> bool | None:
    """What a question for a number of rows gives where there are some; None where it asks for anything else."""
    env, asks = getattr(question.node, "shape_env", None), getattr(question.node, "expr", None)
    kind = getattr(asks, "func", None)
    if env is None or asks is None or kind not in _OF_SIZES:
        return None
    count, number = asks.args
    if count.is_Integer:
        count, number, kind = number, count, _TURNED.get(kind, kind)
    found = count.free_symbols and count.free_symbols <= env.size_like and (count.is_Symbol or count.is_Mul)
    found = found or host_row_counts.is_rest(env, count)
    wanted, given = _OF_SIZES[kind]
    return given if found and number == wanted else None
