"""Lists what is asked of a tensor that is the same wherever it lies: dozens of times in a run, and no stand-in for a GPU has to look."""

from __future__ import annotations

from typing import Any

import torch

_T = torch.Tensor
_PLAIN: frozenset[Any] = frozenset((
    _T.shape, _T.dtype, _T.layout, _T.ndim, _T.requires_grad, _T.is_leaf, _T.data_ptr, _T.dim, _T.numel, _T.size, _T.stride,
    _T.element_size, _T.is_contiguous, _T.storage_offset, _T.is_floating_point, _T.is_complex, _T.record_stream, torch.device,
))  # fmt: skip


def asks(function: Any) -> bool:
    """Whether a function of torch asks for nothing else."""
    return function in _PLAIN or (function.__name__ == "__get__" and function.__self__ in _PLAIN)
