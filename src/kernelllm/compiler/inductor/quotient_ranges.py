"""Kernels over dimensions that are quotients of sizes, such as parts of ``chunk``, may join those over their product.

Inductor finds that ``n * n`` is n rows of n only where n is a symbol: of ``((s + 1) // 2)**2`` it gives up, after it has decided to join
the kernels, and the graph is not lowered at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from kernelllm.compiler.capture.patching import patch


def joined(stack: ExitStack) -> None:
    """Until ``stack`` closes, such a quotient counts as a symbol where Inductor finds no way to split ranges."""
    from torch._inductor.codegen.simd import CantSplit, SIMDKernel

    plain = SIMDKernel._split_iteration_ranges

    def split(groups: Iterable[Any], lengths: Sequence[Sequence[Any]]) -> Any:
        groups = list(groups)
        try:
            return plain(groups, lengths)
        except CantSplit:
            return _of_symbols(plain, groups, lengths)

    patch(stack, SIMDKernel, "_split_iteration_ranges", staticmethod(split))


def _of_symbols(plain: Any, groups: list[Any], lengths: Sequence[Sequence[Any]]) -> Any:
    """The same with a symbol for each quotient, which is taken to be more than 1: smaller ones make ranges of one element, at worst."""
    import sympy
    from torch._inductor.virtualized import V
    from torch.utils._sympy.functions import FloorDiv

    sizes = [sympy.sympify(size) for size in (*groups, *(size for part in lengths for size in part))]
    quotients = sorted({quotient for size in sizes for quotient in size.atoms(FloorDiv)}, key=str)
    symbols = {quotient: sympy.Symbol(f"quotient{i}", positive=True, integer=True) for i, quotient in enumerate(quotients)}
    known, more = V.graph.sizevars, V.graph.sizevars.statically_known_gt

    def larger(left: Any, right: Any) -> bool:
        of_quotients = isinstance(left, sympy.Basic) and left.free_symbols and left.free_symbols <= set(symbols.values())
        return bool(of_quotients and right == 1) or bool(more(left, right))

    with ExitStack() as stack:
        patch(stack, known, "statically_known_gt", larger)
        written = [[sympy.sympify(size).xreplace(symbols) for size in part] for part in lengths]
        ranges, getters = plain([size.xreplace(symbols) for size in sizes[: len(groups)]], written)
    meant = {symbol: quotient for quotient, symbol in symbols.items()}

    def meaning(getter: Any) -> Any:
        return lambda variables: sympy.sympify(getter(variables)).xreplace(meant)

    return [[sympy.sympify(size).xreplace(meant) for size in part] for part in ranges], [[meaning(g) for g in part] for part in getters]


__all__ = ["joined"]
