"""Split reductions whose number of parts follows the sizes.

Inductor splits a long reduction into a fixed number of parts, chosen for the sizes it sees. That number then sits in
shapes, strides and index arithmetic, so at other sizes most parts are empty or each is far too long. Here the number is
marked while Inductor writes (a prime that means nothing else), and the emitter puts a variable in its place.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import sympy
import torch
from torch.utils._pytree import tree_leaves

from kernelllm.compiler.capture.patching import patch
from kernelllm.compiler.capture.rewrites.staged_reductions import LONG
from kernelllm.compiler.inductor.row_reductions import few_across

SMALLEST = 64
"""Splits into fewer parts stay plain numbers: a small prime could mean something else."""
_ACROSS = 4096
"""Elements across memory that one program adds up: where there are few columns, most cores would have nothing to do."""
ENOUGH = 1024
"""Rows along memory that keep all cores busy, one program each."""


_LENGTHS: dict[int, Any] = {}
_NUMBERS: set[int] = set()
"""Numbers of the graph that is lowered: a mark divides none of them."""


def mark(parts: int, length: Any = None) -> int:
    """The largest prime at most 31/32 of ``parts`` that marks no other length and divides no number of the graph: no multiple of a tile,
    nor one beside a power of two."""
    candidate = parts * 31 // 32
    while candidate > 1 and not (
        is_prime(candidate) and _LENGTHS.get(candidate, length) == length and all(n % candidate for n in _NUMBERS)
    ):
        candidate -= 1
    return candidate


def lengths() -> dict[int, Any]:
    """Marks given out since :func:`marked` was opened, with the length that each splits."""
    return _LENGTHS


def _numbers(graph: torch.fx.Graph) -> Iterator[int]:
    """Whole numbers among the arguments and the sizes of a graph's operators, and those beside them: ``(n + 96) // 97`` is a length."""
    for node in graph.nodes:
        leaves = [n for n in tree_leaves((node.args, node.kwargs)) if type(n) is int]
        for value in tree_leaves(node.meta.get("val")):
            for size in (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,):
                expression = size.node.expr if isinstance(size, torch.SymInt) else size
                leaves += [int(n) for n in sympy.sympify(expression).atoms(sympy.Integer)] if isinstance(expression, sympy.Expr) else []
                leaves += [expression] if type(expression) is int else []
        yield from (abs(n) + d for n in leaves if 1 < abs(n) < 2**31 for d in (-1, 0, 1))


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


@contextmanager
def marked(graph: torch.fx.Graph, *, marks: bool = True, whole_rows: bool = False) -> Iterator[None]:
    """While open, as ``graph`` is lowered, Inductor's split reductions of symbolic length have a marked number of parts (``marks``), or
    stay in one kernel where there are rows for all cores (``whole_rows``). Running sums are not split, nor what has as many elements as
    torch counts meanwhile: the parts must be known where a forward begins."""
    from torch._inductor.ir import Reduction, Scan
    from torch._inductor.runtime.hints import ReductionHint
    from torch._inductor.virtualized import V
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    plain, scan = Reduction.num_splits, Scan.num_splits
    names = list(inspect.signature(plain).parameters)
    _LENGTHS.clear()
    _NUMBERS.clear()
    _NUMBERS.update(_numbers(graph) if marks else ())

    def num_splits(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        given = dict(zip(names, args, strict=False)) | kwargs
        hint, parts = plain(*args, **kwargs)
        length = given["reduction_numel"]
        if free_unbacked_symbols([length, *given["ranges"]]):
            return hint, 1
        longest = LONG if hint == ReductionHint.INNER else _ACROSS
        if parts != 1 and (V.graph.sizevars.optimization_hint(length) <= longest or set(given["ranges"]) & set(_LENGTHS)):
            return hint, 1  # one program does it, or it is a part already
        if isinstance(parts, int) and parts >= SMALLEST:
            made = mark(parts, length)
            if made >= SMALLEST // 2:
                _LENGTHS[made] = length
                return hint, made
        return hint, parts

    def in_rows(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        given = dict(zip(names, args, strict=False)) | kwargs
        hint, parts = plain(*args, **kwargs)
        rows, length = (V.graph.sizevars.optimization_hint(n, fallback=0) for n in (math.prod(given["ranges"]), given["reduction_numel"]))
        whole = rows >= ENOUGH and length <= LONG and (hint == ReductionHint.INNER or (parts != 1 and _reads_along_rows(given)))
        if parts != 1 and hint == ReductionHint.OUTER and few_across(rows, length):
            return hint, 1
        return (ReductionHint.INNER, 1) if whole else (hint, parts)

    def in_one(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return scan(*args, **kwargs)[0], 1  # a split scan needs Inductor's runtime: its programs hand results on through memory

    with ExitStack() as stack:
        if marks or whole_rows:
            patch(stack, Reduction, "num_splits", staticmethod(num_splits if marks else in_rows))
        patch(stack, Scan, "num_splits", staticmethod(in_one))
        yield


def _reads_along_rows(given: dict[str, Any]) -> bool:
    """Whether neighbours along the reduction lie side by side in memory, for most of what depends on both its row and its column.

    Inductor looks at strides alone, which indices with a quotient (a scale for each group of weights) do not have.
    """
    from torch._inductor import dependencies
    from torch._inductor.ir import FlexibleLayout

    sizes = given["ranges"], given["reduction_ranges"]
    (rows, columns), _ = dependencies.index_vars_squeeze(*sizes, prefix="d")
    ends = [[v for index in group for v in sympy.sympify(index).free_symbols][-1:] for group in (rows, columns)]
    with ExitStack() as stack:
        patch(stack, FlexibleLayout, "allow_indexing", True)
        reads = dependencies.extract_read_writes(given["inner_fn"], *sizes, prefix="d").reads
    along = across = 0
    for index in (read.index for read in reads if all(set(end) & read.index.free_symbols for end in ends)):
        index = index.expand(identity=True)  # what a concatenation reads is marked as it is
        start = dict.fromkeys(index.free_symbols, 0)
        here, below, right = (index.subs({**start, **dict.fromkeys(moved, 1)}) for moved in ([], *ends))
        along += bool(abs(right - here) < abs(below - here))
        across += bool(abs(right - here) > abs(below - here))
    return along > across
