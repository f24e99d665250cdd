"""``min`` and ``max`` of two symbolic sizes stay expressions; Inductor would take the one at the problem's own sizes, with a guard."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import sympy
import torch
from torch.fx import GraphModule
from torch.fx.experimental import symbolic_shapes
from torch.utils._sympy.functions import Max, Min
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import SymPyValueRangeAnalysis, ValueRanges

from kernelllm.compiler.capture import size_quotients
from kernelllm.compiler.capture.patching import patch

_OF_MANY: dict[str, Any] = {"_nary_sym_max": torch.sym_max, "_nary_sym_min": torch.sym_min}
"""Functions of any number of sizes, by torch 2.13's names for them, which its lowering does not know."""
_END = 2**63 - 1
"""The end of ``x[n:]``, which no size reaches."""
_INDEX = ValueRanges(0, int_oo)
"""Where an index lies of which nothing else is known."""


def replace(stack: ExitStack) -> None:
    """Files have no guards of Inductor's: a diagonal of 24 x 40 elements must not be 24 long at 40 x 24."""
    from torch._inductor.sizevars import SizeVarAllocator

    size_quotients.simplified(stack)
    patch(stack, SizeVarAllocator, "evaluate_min", _smaller)
    patch(stack, SizeVarAllocator, "evaluate_max", _larger)
    patch(stack, symbolic_shapes, "_maybe_evaluate_static_worker", _of_indices(symbolic_shapes._maybe_evaluate_static_worker))
    patch(stack, SymPyValueRangeAnalysis, "add", staticmethod(_of_infinities(SymPyValueRangeAnalysis.add)))


def of_two(graph: GraphModule) -> None:
    """Functions of many sizes in a graph as functions of two, in place."""
    for node in list(graph.graph.nodes):
        function = _OF_MANY.get(getattr(node.target, "__name__", ""))
        if node.op != "call_function" or function is None:
            continue
        made = node.args[0]
        with graph.graph.inserting_before(node):
            for other in node.args[1:]:
                values = [getattr(n, "meta", {}).get("val", n) for n in (made, other)]
                made = graph.graph.call_function(function, (made, other))
                made.meta = {**node.meta, "val": function(*values)}
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)


def _of_indices(evaluated: Callable[..., Any]) -> Callable[..., Any]:
    """What is known of an expression. Of the larger of 0 and an index torch 2.13 asks without the index's range, and raises."""

    def worker(expression: Any, symbols: tuple[Any, ...], *rest: Any) -> Any:
        return evaluated(expression, tuple(s._replace(vr=_INDEX) if s.vr is None and s.k.is_nonnegative else s for s in symbols), *rest)

    return worker


def _of_infinities(bounds: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Bounds of a sum of constants. That of two opposite infinities has none, and torch raises: ``logaddexp`` of what is all -inf."""

    def add(left: Any, right: Any) -> Any:
        try:
            return bounds(left, right)
        except AssertionError as error:
            if "NaN" not in str(error):
                raise
            return ValueRanges.unknown()

    return add


def _smaller(sizes: Any, left: Any, right: Any) -> Any:
    known = _ordered(sizes, left, right)
    return known[0] if known else Min(left, right)


def _larger(sizes: Any, left: Any, right: Any) -> Any:
    known = _ordered(sizes, left, right)
    return known[1] if known else Max(left, right)


def _ordered(sizes: Any, left: Any, right: Any) -> tuple[Any, Any] | None:
    """The smaller and the larger of two expressions, where that is known for all sizes."""
    left, right = sympy.sympify(left), sympy.sympify(right)
    for low, high in ((left, right), (right, left)):
        if high == _END or sizes.statically_known_leq(low, high):
            return low, high
    return None
