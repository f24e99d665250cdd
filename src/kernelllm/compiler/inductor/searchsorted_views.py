"""``searchsorted`` and ``bucketize`` in a view (``edges[1:]``, a flipped table): Inductor of torch 2.11 ignores the view's offset."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

aten = torch.ops.aten


def from_offset(stack: ExitStack) -> None:
    """Until ``stack`` closes, what is searched is a tensor of its own, or a view that begins where its tensor does."""
    from torch._inductor import lowering

    if hasattr(lowering, "_realize_bucketize_lookup_tensor"):  # these versions of torch count from where a view begins
        return
    search, place = lowering.lowerings[aten.searchsorted.Tensor], lowering.lowerings[aten.bucketize.Tensor]

    def searchsorted(numbers: Any, values: Any, *, sorter: Any = None, **named: Any) -> Any:
        return search(_from_its_start(numbers), values, sorter=None if sorter is None else _from_its_start(sorter), **named)

    def bucketize(values: Any, numbers: Any, **named: Any) -> Any:
        return place(values, _from_its_start(numbers), **named)

    for operator, lower in ((aten.searchsorted.Tensor, searchsorted), (aten.bucketize.Tensor, bucketize)):
        stack.callback(lowering.lowerings.__setitem__, operator, lowering.lowerings[operator])
        lowering.lowerings[operator] = lower


def _from_its_start(numbers: Any) -> Any:
    from torch._inductor import ir

    held = ir.ExternKernel.realize_input(numbers)
    return ir.TensorBox(held) if held.get_layout().offset == 0 else ir.ExternKernel.copy_input(numbers)
