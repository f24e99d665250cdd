"""Fourier transforms as products with a matrix of cosines and sines, one dimension after the other.

The matrix is computed in a kernel; whole numbers are reduced before they become angles, so that it is exact to rounding. Sides of
more than :data:`LONGEST` stay with torch, whose algorithm takes fewer steps.
"""

from __future__ import annotations

from typing import Any

import torch

LONGEST = 1024
"""The longest side that is transformed by a product."""


def _hint(size: Any) -> int:
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


def short(x: torch.Tensor, dims: Any, last: Any = 1) -> bool:
    """Whether products serve: real parts of a type that torch transforms too, and sides that are short."""
    return x.dtype in (torch.float32, torch.float64) and all(_hint(n) <= LONGEST for n in (*(x.shape[d] for d in dims), last))


def _waves(x: torch.Tensor, count: Any, waves: Any, length: Any, scaling: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines ``[count, waves]`` of ``2 pi j k / length``, divided by 1, the root of the length or the length (``scaling``)."""
    turns = torch.arange(count, device=x.device)[:, None] * torch.arange(waves, device=x.device) % length
    angle = turns.to(x.dtype) * (2 * torch.pi) / length
    size = torch.ones_like(angle) if scaling == 0 else torch.full_like(angle, length)
    size = size.sqrt() if scaling == 1 else size
    return angle.cos() / size, angle.sin() / size


def real_to_complex(x: torch.Tensor, dims: Any, scaling: int, onesided: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """``_fft_r2c``: the last of the dimensions first, as the input has one part alone."""
    *others, dim = dims
    length = x.shape[dim]
    waves = length // 2 + 1 if onesided else length
    cosine, sine = _waves(x, length, waves, length, scaling)
    both = torch.matmul(x.movedim(dim, -1), torch.cat([cosine, -sine], 1))
    re, im = both.narrow(-1, 0, waves).movedim(-1, dim), both.narrow(-1, waves, waves).movedim(-1, dim)
    return complex_to_complex(re, im, others, scaling, forward=True)


def complex_to_complex(re: torch.Tensor, im: torch.Tensor, dims: Any, scaling: int, forward: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """``_fft_c2c``: real parts beside imaginary ones, times a matrix of four blocks."""
    for dim in dims:
        length = re.shape[dim]
        cosine, sine = _waves(re, length, length, length, scaling)
        sine = -sine if forward else sine
        matrix = torch.cat([torch.cat([cosine, sine], 1), torch.cat([-sine, cosine], 1)], 0)
        both = torch.matmul(torch.cat([re.movedim(dim, -1), im.movedim(dim, -1)], -1), matrix)
        re, im = both.narrow(-1, 0, length).movedim(-1, dim), both.narrow(-1, length, length).movedim(-1, dim)
    return re, im


def complex_to_real(re: torch.Tensor, im: torch.Tensor, dims: Any, scaling: int, length: Any) -> torch.Tensor:
    """``_fft_c2r``: the waves that are not given are the conjugates of those that are, so that these count twice."""
    *others, dim = dims
    re, im = complex_to_complex(re, im, others, scaling, forward=False)
    waves = length // 2 + 1
    cosine, sine = _waves(re, waves, length, length, scaling)
    number = torch.arange(waves, device=re.device)[:, None]
    weight = torch.where((number == 0) | (2 * number == length), 1.0, 2.0).to(re.dtype)
    parts = torch.cat([re.movedim(dim, -1).narrow(-1, 0, waves), im.movedim(dim, -1).narrow(-1, 0, waves)], -1)
    return torch.matmul(parts, torch.cat([cosine * weight, -sine * weight], 0)).movedim(-1, dim)


__all__ = ["complex_to_complex", "complex_to_real", "real_to_complex", "short"]
