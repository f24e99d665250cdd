"""Windows whose length, step or padding is a size: gathered at positions. Torch reads such numbers in C++, and so would pin each."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from kernelllm.compiler.capture.decompositions import window_sums


def _sizes(*values: Any) -> bool:
    return any(isinstance(n, torch.SymInt) for v in values for n in (v if isinstance(v, list | tuple) else (v,)))


def _pair(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) and len(value) == 2 else [value, value]


def _starts(length: Any, size: Any, step: Any, device: Any, dilation: Any = 1) -> torch.Tensor:
    """The places of each window, one window a column."""
    if length < dilation * (size - 1) + 1:
        raise RuntimeError(f"windows of {size} do not fit into {length}")
    count = (length - dilation * (size - 1) - 1) // step + 1
    places: torch.Tensor = torch.arange(size, device=device)[:, None] * dilation + torch.arange(count, device=device) * step
    return places


def along(_: Any, x: torch.Tensor, dimension: int, size: Any, step: Any) -> Any:
    """``Tensor.unfold``. Its result is no view."""
    if not _sizes(size, step) or x.dim() == 0:
        return NotImplemented
    dim = dimension % x.dim()
    taken = x.movedim(dim, -1)[..., _starts(x.shape[dim], size, step, x.device).t()]
    return taken.movedim(-2, dim)


def unfold(_: Any, input: torch.Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    if not _sizes(kernel_size, dilation, padding, stride) or input.dim() != 4:
        return NotImplemented
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (_pair(v) for v in (kernel_size, dilation, padding, stride))
    x = pad(input, (pw, pw, ph, ph)) if _sizes(ph, pw) or ph or pw else input
    rows, across = _starts(x.shape[2], kh, sh, x.device, dh), _starts(x.shape[3], kw, sw, x.device, dw)
    taken = x[:, :, rows[:, None, :, None], across[None, :, None, :]]
    return taken.reshape(x.shape[0], x.shape[1] * kh * kw, rows.shape[1] * across.shape[1])


def fold(_: Any, input: torch.Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    given = (output_size, kernel_size, dilation, padding, stride)
    return window_sums.fold(input, *map(_pair, given)) if _sizes(*given) and input.dim() in (2, 3) else NotImplemented


__all__ = ["along", "fold", "unfold"]
