"""Special functions that Inductor has no rule for (``digamma``, ``zeta``, Bessel functions, ...), in elementwise arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from kernelllm.compiler.capture.decompositions import floor_division

aten = torch.ops.aten

_SHIFT = 10
"""How far an argument is moved up by recurrence, to where the series serve."""
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)
_MOST = 8
_ZETA = (12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
         1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18)  # fmt: skip
"""(2k)! over the Bernoulli numbers: what the terms of Euler and Maclaurin's sum are divided by."""
_RATIO = tuple[tuple[float, ...], tuple[float, ...]]
"""Two polynomials' coefficients, highest power first: one is divided by the other."""
_DECAYING: _RATIO = (
    (0.346538101525629, 12.007595273964581, 76.27960536152345, 168.08922493463058, 159.75639135016442, 70.53609068404442,
     14.026469116338967, 1.0),
    (0.5675945326387702, 14.75625625848472, 84.51389701414746, 177.31808814540045, 164.2346928715297, 71.47784008255756,
     14.095913560783403, 1.0),
)
_SINE: _RATIO = (
    (-0.1316963234183318, -0.6264565444319123, -0.6931580360369335, -0.2797799815451191, -0.04919001326095003,
     -0.004062659235948854, -0.0001592764962392621, -2.776491081552329e-06, -1.6778769848911465e-08),
    (13.356042070655324, 32.682503279522464, 26.736704094149957, 9.187074029072596, 1.4752914677166642, 0.11568717379518804,
     0.004402916416152112, 7.547203482874142e-05, 4.5185009297058035e-07),
)
_COSINE: _RATIO = (
    (0.01973399320916857, 0.39110302961568827, 1.0657989759959559, 0.9391692298166502, 0.35146565610554764, 0.06338889196289255,
     0.005858041130483885, 0.000282851600836737, 6.98793669997261e-06, 8.117892395543892e-08, 3.415517847659236e-10),
    (9.30892908077442, 19.835292871831214, 15.564662893286462, 5.476860694229755, 0.9542936116189619, 0.08645808263523921,
     0.004126565238242226, 0.00010125908511650914, 1.1716673321441352e-06, 4.9183457006293e-09),
)
"""What Airy's function is made of beyond :data:`_NEAR`, as in Cephes."""
_NEAR = 2.09
_ADDED = 9
"""How many terms of the zeta function are added one by one."""


def _series(z: torch.Tensor, coefficients: tuple[float, ...]) -> Any:
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
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
    """Of small order; torch has the others."""
    if n == 0:
        return digamma(x)
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    if n != 1:
        return math.factorial(n) * (1 if n % 2 else -1) * zeta(torch.full_like(x, n + 1), x) if n <= _MOST else NotImplemented
    start = torch.where(x < 0.5, 1 - x, x)
    y, steps = start + _SHIFT, _steps(start, 2)
    z = 1 / (y * y)
    positive = steps + 1 / y + 0.5 * z + _series(z, _TRIGAMMA) * z / y
    sine = torch.sin(torch.pi * x)  # as torch: not exactly 0 at negative integers
    return torch.where(x < 0.5, torch.pi**2 / (sine * sine) - positive, positive)


def zeta(x: Any, q: Any) -> Any:
    """Hurwitz's: the sum of (q + k) ** -x over all k from 0 on."""
    floats = [v for v in (x, q) if isinstance(v, torch.Tensor)]
    if any(v.dtype not in (torch.float32, torch.float64) for v in floats):
        return NotImplemented
    x, q = (v if isinstance(v, torch.Tensor) else torch.full_like(floats[0], v) for v in (x, q))
    # Where q is negative and x a whole number, the terms below 0 are a sum of their own, with the sign of (-1) ** x.
    below = q.ceil() - q
    first = _zeta_above_zero(x, torch.where(q > 0, q, 1 - below))
    lower = _zeta_above_zero(x, torch.where(q > 0, 1.0, below)) - _zeta_above_zero(x, torch.where(q > 0, 1.0, 1 - q))
    total = torch.where(q > 0, first, first + torch.where(x % 2 == 0, lower, -lower))
    whole = torch.where(q == q.floor(), torch.inf, torch.where(x == x.floor(), total, torch.nan))
    result = torch.where(q > 0, total, whole)
    return torch.where(x == 1, torch.inf, torch.where(x < 1, torch.nan, result))


def _zeta_above_zero(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    total = q ** -x
    for k in range(1, _ADDED + 1):
        last = (q + k) ** -x
        total = total + last
    w = q + _ADDED
    rest = last * w / (x - 1) - 0.5 * last
    term = last * x / w
    for k, divisor in enumerate(_ZETA):
        rest = rest + term / divisor
        term = term * ((x + (2 * k + 1)) / w) * ((x + (2 * k + 2)) / w)
    negligible = last < torch.finfo(x.dtype).eps**2 * total  # what follows need not be finite then
    return torch.where(negligible, total, total + rest)


def airy_ai(x: torch.Tensor) -> Any:
    """Airy's function: a power series near 0, sine and cosine far below it, an exponential far above."""
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    far = x.abs().clamp(min=_NEAR)
    root, angle = far.sqrt(), 2 / 3 * far * far.sqrt()
    z, quarter = 1 / angle, angle + math.pi / 4
    size = math.pi**-0.5 / root.sqrt()
    decaying = size * _ratio(z, _DECAYING) * 0.5 * torch.exp(-angle)
    waves = size * (quarter.sin() * (1 + z * z * _ratio(z * z, _SINE)) - quarter.cos() * z * _ratio(z * z, _COSINE))
    cube = x.clamp(-_NEAR, _NEAR) ** 3
    even: Any = 1.0
    odd: Any = 1.0
    for k in range(12, 0, -1):
        even, odd = 1 + even * cube / ((3 * k - 1) * 3 * k), 1 + odd * cube / (3 * k * (3 * k + 1))
    near = 0.355028053887817239260 * even - 0.258819403792806798405 * x * odd
    result = torch.where(x < -_NEAR, waves, torch.where(x >= _NEAR, decaying, near))
    return torch.where(x.isinf(), torch.nan, result)


def _ratio(z: torch.Tensor, ratio: _RATIO) -> Any:
    above, below = (_series(z, coefficients[::-1]) for coefficients in ratio)
    return above / below


def spherical_bessel_j0(x: torch.Tensor) -> Any:
    """The sine over its argument."""
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    square = x * x
    near = _series(square, (1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800, 1 / 6227020800))
    return torch.where(x.isinf(), 0.0, torch.where(x.abs() < 0.5, near, x.sin() / x))


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


_CHEBYSHEV: dict[str, Callable[[Any], Any]] = {
    "t": lambda x: x, "u": lambda x: 2 * x, "v": lambda x: 2 * x - 1, "w": lambda x: 2 * x + 1,
}  # fmt: skip
"""The polynomial of degree 1 of each kind. The next one is 2 x times the last, less the one before."""


def _chebyshev(kind: str) -> dict[Any, Callable[..., Any]]:
    rule = polynomial(_CHEBYSHEV[kind], lambda x, p, q, _: 2 * x * p - q)
    plain, shifted = (getattr(aten, f"special_{name}chebyshev_polynomial_{kind}").n_scalar for name in ("", "shifted_"))
    return {plain: rule, shifted: lambda x, n: rule(2 * x - 1, n)}


def rules() -> dict[Any, Callable[..., Any]]:
    """Decompositions for a trace."""
    return {
        aten.digamma.default: digamma,
        aten.polygamma.default: polygamma,
        aten.special_zeta.default: zeta,
        aten.special_zeta.self_scalar: zeta,
        aten.special_zeta.other_scalar: zeta,
        aten.special_airy_ai.default: airy_ai,
        aten.special_spherical_bessel_j0.default: spherical_bessel_j0,
        **floor_division.rules(),
        **{operator: rule for kind in _CHEBYSHEV for operator, rule in _chebyshev(kind).items()},
        aten.special_hermite_polynomial_h.n_scalar: polynomial(lambda x: 2 * x, lambda x, p, q, k: 2 * x * p - 2 * k * q),
        aten.special_hermite_polynomial_he.n_scalar: polynomial(lambda x: x, lambda x, p, q, k: x * p - k * q),
        aten.special_legendre_polynomial_p.n_scalar: polynomial(lambda x: x, lambda x, p, q, k: ((2 * k + 1) * x * p - k * q) / (k + 1)),
        aten.special_laguerre_polynomial_l.n_scalar: polynomial(
            lambda x: 1 - x, lambda x, p, q, k: ((2 * k + 1 - x) * p - k * q) / (k + 1)
        ),
    }


__all__ = ["rules"]
