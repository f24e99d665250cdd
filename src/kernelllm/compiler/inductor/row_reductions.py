"""Reductions over rows of symbolic length: Inductor's rules applied to the problem's own sizes.

Inductor keeps a row in registers (a persistent reduction) only where its length is a known number. Here the length is a
symbol whose value at the problem's own sizes is known, so the rule is asked about that value, and the block is written as the
next power of two of the length.
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kernelllm.compiler import write_time
from kernelllm.compiler.capture.patching import patch
from kernelllm.compiler.inductor import quotient_ranges
from kernelllm.compiler.options import Options

_INNER, _OUTER, _LARGEST = 1024, 64, 16384
"""Longest row kept in registers: along memory, across it, and where it is asked for always (elements)."""


LONGER = 2048
"""The same along memory on a path for known sizes: on an H200, norms of such rows take 0.8 to 0.9 of the time of a loop."""


ACROSS = 2**17
"""Elements of a reduction across memory that stays in one kernel on that path: a second one takes longer to begin than this does."""


CACHED = 2**25
"""Bytes that stay in a GPU's second cache while others are read."""


def few_across(rows: int, length: int) -> bool:
    """Whether so many sums across memory, of so many elements each, are one kernel that holds them in registers."""
    return length <= _INNER and rows * length <= ACROSS


def hint(expression: Any) -> int:
    """The value of a size expression at the problem's own sizes."""
    from torch._inductor.virtualized import V

    return int(V.graph.sizevars.optimization_hint(expression, fallback=8192))


def choices(options: Options, *, backward: bool = False) -> Any:
    """Inductor's choices with reductions decided by hints. ``backward``: sums over a batch, which may be of any size, are loops."""
    from torch._inductor.choices import InductorChoices
    from torch._inductor.runtime.hints import ReductionHint
    from torch.fx.experimental.symbolic_shapes import free_symbols

    class LongerRows(InductorChoices):  # type: ignore[misc]
        @staticmethod
        def should_use_persistent_reduction(features: Any, cooperative_reduction: bool) -> bool:
            inner = features.get_reduction_hint() == ReductionHint.INNER and not cooperative_reduction
            longer = inner and _INNER < hint(features.reduction_numel) <= LONGER
            if not inner and not cooperative_reduction and hint(features.reduction_numel) > _OUTER:
                longer = few_across(hint(features.numel), hint(features.reduction_numel))
            return longer or bool(InductorChoices.should_use_persistent_reduction(features, cooperative_reduction))

        @staticmethod
        def can_fuse(scheduler: Any, node1: Any, node2: Any, shared_data_score: int) -> bool:
            apart = node1.is_reduction() != node2.is_reduction() and _searches(node1 if node2.is_reduction() else node2)
            apart = apart or _crowded(node1, node2)
            return not apart and bool(InductorChoices.can_fuse(scheduler, node1, node2, shared_data_score))

    if options.library and options.persistent == "auto":
        return LongerRows() if options.mixed else InductorChoices()

    class HintChoices(InductorChoices):  # type: ignore[misc]
        @staticmethod
        def should_use_persistent_reduction(features: Any, cooperative_reduction: bool) -> bool:
            if options.persistent == "never" or cooperative_reduction:
                return False
            inner = features.get_reduction_hint() == ReductionHint.INNER
            limit = _INNER if inner else 0 if backward and free_symbols(features.reduction_numel) else _OUTER
            return hint(features.reduction_numel) <= (_LARGEST if options.persistent == "always" else limit)

        @staticmethod
        def can_fuse(scheduler: Any, node1: Any, node2: Any, shared_data_score: int) -> bool:
            write_time.check()
            return bool(InductorChoices.can_fuse(scheduler, node1, node2, shared_data_score))

    return HintChoices()


def _searches(node: Any) -> bool:
    """Whether it looks up where numbers belong: in a kernel that sums rows, each lane of a row would search the same."""
    return any(body.op_counts["bucketize"] for n in node.get_nodes() if (body := getattr(n, "_body", None)) is not None)


def _crowded(*nodes: Any) -> bool:
    """Whether both add to buffers in no order that are together larger than what a cache holds: each by itself stays in it.

    On an H200 a kernel with three of 20 MB took 0.33 ms, and three kernels together 0.16."""
    targets = [{d.name for d in node.read_writes.writes if getattr(d, "mode", None) == "atomic_add"} for node in nodes]
    return all(targets) and sum(map(_bytes, set().union(*targets))) > CACHED


def _bytes(name: str) -> int:
    from torch._inductor.virtualized import V

    return hint(V.graph.get_numel(name)) * int(V.graph.get_dtype(name).itemsize)


@contextmanager
def symbolic_rows() -> Iterator[None]:
    """While open, persistent reductions take rows of symbolic length."""
    import sympy
    from torch._inductor.codegen.triton import TritonKernel
    from torch._inductor.runtime.runtime_utils import next_power_of_2
    from torch._inductor.virtualized import V

    def block(numel: Any) -> int:
        return int(next_power_of_2(hint(V.graph.sizevars.simplify(numel))))

    write = TritonKernel.codegen_static_numels

    def numels(self: Any, code: Any) -> None:
        write(self, _Lines(self, code, V, sympy))

    with ExitStack() as stack:
        _online_softmax(stack)
        quotient_ranges.joined(stack)
        patch(stack, TritonKernel, "_get_persistent_RBLOCK", staticmethod(block))
        patch(stack, TritonKernel, "codegen_static_numels", numels)
        yield


def _online_softmax(stack: ExitStack) -> None:
    """Let softmax over a long row find its maximum and sum in one pass, as Inductor does for rows of known length."""
    import sympy
    from torch._inductor import config, inductor_prims, ir, lowering
    from torch._inductor.virtualized import V

    target = inductor_prims.prepare_softmax_online
    plain = lowering.lowerings[target]

    def lower(x: Any, dim: int) -> Any:
        arguments = lowering._make_reduction_inner(x, axis=dim, keepdims=True, dtype=None, override_return_dtype=None)
        length = V.graph.sizevars.simplify(lowering.sympy_product(arguments["reduction_ranges"]))
        if isinstance(length, sympy.Integer) or hint(length) < config.unroll_reductions_threshold:
            return plain(x, dim)
        how, parts = ir.Reduction.num_splits(**arguments, reduction_type="online_softmax_reduce", reduction_numel=length)
        if parts != 1:
            return plain(x, dim)
        arguments["reduction_hint"] = how
        return ir.OnlineSoftmaxReduction.create(input_node=x, num_output=2, **arguments)

    stack.callback(lowering.lowerings.__setitem__, target, plain)
    lowering.lowerings[target] = lower


def plain_softmax(stack: ExitStack) -> None:
    """Until ``stack`` closes, Inductor leaves the softmax of scaled rows as it is. Its own form takes the maximum before the factor:
    maximum and sum are no longer found in one pass, torch 2.13 asks each element besides whether it is finite, and what so much
    is read for gets stored where a row is long."""
    from torch._inductor.fx_passes import joint_graph

    first, second, *others = joint_graph.pass_patterns
    kept = copy.copy(second)
    kept.patterns = defaultdict(list)
    for key, entries in second.patterns.items():
        scaled = ("mul_softmax_pattern", "div_softmax_pattern")
        kept.patterns[key] = [e for e in entries if getattr(getattr(e, "handler", None), "__name__", "") not in scaled]
    patch(stack, joint_graph, "pass_patterns", [first, kept, *others])


class _Lines:
    """Passes lines on. A block size that was fixed by a hint becomes the next power of two of the row's length."""

    def __init__(self, kernel: Any, code: Any, virtualized: Any, sympy: Any) -> None:
        self.code = code
        simplify = virtualized.graph.sizevars.simplify
        self.symbolic = {t.prefix.upper(): t.prefix for t in kernel.range_trees
                         if t.is_reduction and not isinstance(simplify(t.numel), sympy.Integer | int)}

    def writeline(self, line: str) -> None:
        found = re.fullmatch(r"(\w+)BLOCK: tl\.constexpr = \d+", line) if isinstance(line, str) else None
        if found and found[1] in self.symbolic:
            line = f"{found[1]}BLOCK: tl.constexpr = triton_helpers.constexpr_next_power_of_2({self.symbolic[found[1]]}numel)"
        self.code.writeline(line)
