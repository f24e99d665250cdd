"""Norms of a list of tensors (``torch._foreach_norm``, by which gradients are clipped) as a norm of each where the tensors are large.

A norm joins the kernel that makes its tensor. Torch's own operator wants tensors in memory. It takes many small ones in one launch,
and keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelllm.compiler.options import Options

LARGE = 2**20
"""Elements of a tensor, on average: to write and read so many takes as long as the launches of a norm."""


def rules(options: Options) -> dict[Any, Callable[..., Any]]:
    """Decompositions for a trace."""

    def norms(tensors: list[torch.Tensor], ord: Any = 2, dtype: torch.dtype | None = None) -> Any:
        sizes = [_known(x.numel()) for x in tensors]
        if options.extern != "forbid" and sum(sizes) < LARGE * len(sizes):
            return NotImplemented
        return [torch.linalg.vector_norm(x, ord, dtype=dtype) for x in tensors]

    return {torch.ops.aten._foreach_norm.Scalar: norms}


def _known(size: Any) -> int:
    return int(size.node.hint or 0) if isinstance(size, torch.SymInt) else int(size)


__all__ = ["LARGE", "rules"]
