"""Special functions that Inductor has no rule for, by arithmetic that kernels have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

_SHIFT = 10
"""How far an argument is moved up by recurrence, to where the series serve."""
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)
_MOST = 8


def _series(z: torch.Tensor, coefficients: tuple[float, ...]) -> torch.Tensor:
    total = torch.zeros_like(z)
    for coefficient in reversed(coefficients):
        total = total * z + coefficient
    return total


def _steps(y: torch.Tensor, power: int) -> torch.Tensor:
    """What the recurrence gives for the steps from ``y`` to ``y + _SHIFT``, where the series serves."""
    total = torch.zeros_like(y)
    for k in range(_SHIFT):
        total = total + 1 / (y + k) ** power
    return total


def digamma(x: torch.Tensor) -> Any:
    """Reflected where it is negative; infinite at 0, and no number at negative integers, as torch's."""
    if not x.dtype.is_floating_point:
        return digamma(x.to(torch.get_default_dtype()))
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    start = torch.where(wide <= 0, 1 - wide, wide)
    y, steps = start + _SHIFT, _steps(start, 1)
    positive = y.log() - 0.5 / y - _series(1 / (y * y), _DIGAMMA) / (y * y) - steps
    reflected = positive - torch.pi / torch.tan(torch.pi * (wide - wide.round()))
    result = torch.where(wide < 0, torch.where(wide == wide.floor(), torch.nan, reflected), positive)
    return torch.where(wide == 0, -torch.copysign(torch.full_like(wide, torch.inf), wide), result).to(x.dtype)


def polygamma(n: int, x: torch.Tensor) -> Any:
    """Of order 0 and 1; torch has the others."""
    if n == 0:
        return digamma(x)
    if n != 1 or x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    start = torch.where(x < 0.5, 1 - x, x)
    y, steps = start + _SHIFT, _steps(start, 2)
    z = 1 / (y * y)
    positive = steps + 1 / y + 0.5 * z + _series(z, _TRIGAMMA) * z / y
    sine = torch.sin(torch.pi * x)  # as torch: not exactly 0 at negative integers
    return torch.where(x < 0.5, torch.pi**2 / (sine * sine) - positive, positive)


def polynomial(second: Callable[[Any], Any], following: Callable[[Any, Any, Any, int], Any]) -> Callable[..., Any]:
    """The rule for a family of polynomials: the one of degree 1, and the next one of the last two."""

    def rule(x: torch.Tensor, n: Any) -> Any:
        if not isinstance(n, int) or not 0 <= n <= _MOST or x.dtype not in (torch.float32, torch.float64):
            return NotImplemented
        before, now = torch.ones_like(x), second(x)
        for k in range(1, n):
            before, now = now, following(x, now, before, k)
        return now if n else before

    return rule


def rules() -> dict[Any, Callable[..., Any]]:
    """Decompositions for a trace."""
    return {
        aten.digamma.default: digamma,
        aten.polygamma.default: polygamma,
        aten.special_chebyshev_polynomial_t.n_scalar: polynomial(lambda x: x, lambda x, p, q, _: 2 * x * p - q),
        aten.special_chebyshev_polynomial_u.n_scalar: polynomial(lambda x: 2 * x, lambda x, p, q, _: 2 * x * p - q),
        aten.special_hermite_polynomial_h.n_scalar: polynomial(lambda x: 2 * x, lambda x, p, q, k: 2 * x * p - 2 * k * q),
        aten.special_hermite_polynomial_he.n_scalar: polynomial(lambda x: x, lambda x, p, q, k: x * p - k * q),
        aten.special_legendre_polynomial_p.n_scalar: polynomial(lambda x: x, lambda x, p, q, k: ((2 * k + 1) * x * p - k * q) / (k + 1)),
        aten.special_laguerre_polynomial_l.n_scalar: polynomial(
            lambda x: 1 - x, lambda x, p, q, k: ((2 * k + 1 - x) * p - k * q) / (k + 1)
        ),
    }


__all__ = ["rules"]
