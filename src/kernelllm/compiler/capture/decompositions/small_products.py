"""Products of many small matrices (links of a lattice, rotations) as sums: a batched product would flatten what they are laid out in."""

from __future__ import annotations

from typing import Any

import torch

_SMALL = 4
"""Rows, columns and terms up to which such a product is one."""
_KINDS = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def matmul(_: Any, a: Any, b: Any, **kwargs: Any) -> Any:
    """The product where both operands are laid out in two dimensions or more; kernels then index these as they are. Of complex numbers
    how many terms there are is fixed: of each product there would be four, and their sums loops."""
    if kwargs or not all(isinstance(t, torch.Tensor) and t.dim() > 3 and t.dtype in _KINDS for t in (a, b)) or a.dtype != b.dtype:
        return NotImplemented
    sizes = [_own(n) if a.is_complex() else n for n in (*a.shape[-2:], *b.shape[-2:])]
    if not all(isinstance(n, int) and 1 < n <= _SMALL for n in sizes) or sizes[1] != sizes[2]:
        return NotImplemented
    if int(a.shape[-1]) != int(b.shape[-2]):
        return NotImplemented
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def _own(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint or 0)
