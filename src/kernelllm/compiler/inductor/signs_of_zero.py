"""Sums of a few elements that Inductor writes out begin with zero, where their sign matters: a sum in torch is never -0."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

from kernelllm.compiler.capture.patching import patch

aten = torch.ops.aten
_READERS = (aten.atan2.default, aten.copysign.Tensor, aten.signbit.default, aten.angle.default)
"""What has another result for -0."""


def of_sums(stack: ExitStack) -> None:
    """Until ``stack`` closes, written out sums of graphs that look at signs of zeros are 0 + a + b."""
    from torch._inductor.ir import Reduction
    from torch._inductor.virtualized import V, ops

    original = Reduction._unroll_reduction_fn

    def unrolled(inner_fn: Any, reduction_ranges: Any, reduction_type: str, src_dtype: torch.dtype) -> Any:
        made = original(inner_fn, reduction_ranges, reduction_type, src_dtype)
        graph = V.graph.graph
        if reduction_type != "sum" or not any(graph.find_nodes(op="call_function", target=one) for one in _READERS):
            return made
        return lambda index: ops.add(ops.constant(0, src_dtype), made(index))

    patch(stack, Reduction, "_unroll_reduction_fn", staticmethod(unrolled))


__all__ = ["of_sums"]
