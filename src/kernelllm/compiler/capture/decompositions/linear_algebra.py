"""Decompositions of torch's linear algebra into four templates (LU, LDL, QR, triangular systems) and elementwise operators.

What they leave to torch: complex matrices, sides above :data:`LARGEST`, eigenvalues, singular values and least squares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelllm.compiler import template_ops

LARGEST = 1024
"""One program takes a whole matrix; beyond this side a library's many programs are far ahead."""

CHECKED: dict[Any, Callable[..., Any]] = {
    **{getattr(torch.linalg, name): getattr(torch.linalg, f"{name}_ex") for name in ("cholesky", "inv", "solve", "ldl_factor")},
    torch.inverse: torch.linalg.inv_ex, torch.Tensor.inverse: torch.linalg.inv_ex,
}  # fmt: skip
"""Functions that look at their result and raise, with the operators that can do so in one call."""


def checked(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], raises: bool) -> Any:
    """What a function of :data:`CHECKED` gives. To look at its result the host would wait for the GPU: where nothing is to be raised, the
    GPU puts NaN into the results of matrices that have none."""
    made = CHECKED[func](*args, **kwargs, check_errors=raises)
    out = made[0] if raises else _nan_where_failed(made[0], made.info, args[0] if args else kwargs["A"])
    return (out, made[1]) if func is torch.linalg.ldl_factor else out


def _nan_where_failed(out: Any, info: Any, a: Any) -> Any:
    vectors = out.dim() < a.dim()
    failed = info.reshape(*info.shape, *[1] * (1 if vectors else 2)) != 0
    return torch.where(failed, float("nan"), out)


def _lu(a: Any, pivot: bool = True) -> tuple[Any, Any]:
    lu, pivots = template_ops.register().lu_factor(a, pivot)
    return lu, pivots


def _order(pivots: Any, rows: Any) -> Any:
    return template_ops.register().permutation(pivots, rows)


def _triangular(a: Any, b: Any, upper: bool, unit: bool = False) -> Any:
    """x where a x = b, over broadcast batches."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (t.expand(*batch, *t.shape[-2:]) for t in (a, b))
    flat = [t.reshape(-1, *t.shape[-2:]) if len(batch) != 1 else t for t in (a, b)]
    return template_ops.register().triangular_solve(*flat, upper, unit).reshape(b.shape)


def _eye(like: Any, side: Any) -> Any:
    return torch.eye(side, dtype=like.dtype, device=like.device)


def _info(a: Any) -> Any:
    return torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)


def _solved(lu: Any, pivots: Any, b: Any, adjoint: bool = False) -> Any:
    """x where P L U x = b, or its transpose."""
    order = _order(pivots, lu.shape[-1]).unsqueeze(-1)
    batch = torch.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    b = b.expand(*batch, *b.shape[-2:])
    order = order.expand(b.shape)
    if adjoint:
        x = _triangular(lu.mT, _triangular(lu.mT, b, False), True, unit=True)
        return torch.zeros_like(x).scatter(-2, order, x)
    return _triangular(lu, _triangular(lu, b.gather(-2, order), False, unit=True), True)


def _lu_factor_ex(a: Any, pivot: bool = True, check_errors: bool = False) -> Any:
    return (*_lu(a, pivot), _info(a))


def _ldl_factor_ex(a: Any, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    return (*template_ops.register().ldl_factor(a), _info(a))


def _lu_unpack(lu: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    m, n = lu.shape[-2:]
    k = torch.sym_min(m, n)
    none = lu.new_empty((0,))
    lower = lu[..., :k].tril(-1) + torch.eye(m, k, dtype=lu.dtype, device=lu.device) if unpack_data else none
    upper = lu[..., :k, :].triu() if unpack_data else none
    if not unpack_pivots:
        return none, lower, upper
    rows = torch.arange(m, device=lu.device)
    return (rows[:, None] == _order(pivots, m).unsqueeze(-2)).to(lu.dtype), lower, upper


def _solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    b = b.unsqueeze(-1) if vector else b
    lu, pivots = _lu(a)
    x = _solved(lu, pivots, b) if left else _solved(lu, pivots, b.mT, adjoint=True).mT
    return x.squeeze(-1) if vector else x, lu, pivots, _info(a)


def _lu_solve(lu: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    return _solved(lu, pivots, b, adjoint) if left else _solved(lu, pivots, b.mT, not adjoint).mT


def _inv_ex(a: Any, *, check_errors: bool = False) -> Any:
    return _solved(*_lu(a), _eye(a, a.shape[-1])), _info(a)


def _sign(lu: Any, pivots: Any) -> Any:
    """Of the exchanged rows."""
    own = torch.arange(1, lu.shape[-1] + 1, device=lu.device)
    return 1.0 - 2.0 * ((pivots != own).sum(-1) % 2).to(lu.dtype)


def _det(a: Any) -> Any:
    lu, pivots = _lu(a)
    return lu.diagonal(0, -2, -1).prod(-1) * _sign(lu, pivots), lu, pivots


def _slogdet(a: Any) -> Any:
    lu, pivots = _lu(a)
    diagonal = lu.diagonal(0, -2, -1)
    return diagonal.sign().prod(-1) * _sign(lu, pivots), diagonal.abs().log().sum(-1), lu, pivots


def _cholesky(a: Any, upper: bool = False) -> Any:
    """By LU without exchanges, which for such matrices is as exact: L U = L D L^T. One triangle is read."""
    half = a.mT.tril() if upper else a.tril()
    lu, _ = _lu(half + half.tril(-1).mT, False)
    root = lu.diagonal(0, -2, -1).sqrt()
    lower = (lu.tril(-1) + _eye(a, a.shape[-1])) * root.unsqueeze(-2)
    return lower.mT if upper else lower


def _cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    lower = factor.mT if upper else factor
    return _triangular(lower.mT, _triangular(lower, b, False), True)


def _qr(a: Any, mode: str = "reduced") -> Any:
    q, r = template_ops.register().qr(a, mode == "complete")
    r = r if mode == "complete" else r[..., : torch.sym_min(*a.shape[-2:]), :]
    return a.new_empty((0,)) if mode == "r" else q, r.triu()


def _solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    return _triangular(a, b, upper, unitriangular) if left else _triangular(a.mT, b.mT, not upper, unitriangular).mT


def _old_triangular_solve(b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    factor = a.mT if transpose else a
    return _triangular(factor, b, upper != transpose, unitriangular), a.clone()


def _hint(size: Any) -> int:
    return size.node.hint or 0 if isinstance(size, torch.SymInt) else size


def _where_it_fits(rule: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        real = not any(isinstance(a, torch.Tensor) and a.is_complex() for a in args)
        fits = real and all(_hint(side) <= LARGEST for t in tensors for side in t.shape[-2:])
        return rule(*args, **kwargs) if fits else NotImplemented

    return call


def rules() -> dict[Any, Callable[..., Any]]:
    """The decompositions, by operator."""
    aten = torch.ops.aten
    found: dict[Any, Callable[..., Any]] = {
        aten.linalg_lu_factor_ex: _lu_factor_ex, aten.lu_unpack: _lu_unpack, aten.linalg_lu_solve: _lu_solve,
        aten.linalg_lu: lambda a, *, pivot=True: _lu_unpack(*_lu(a, pivot)), aten._linalg_solve_ex: _solve_ex,
        aten.linalg_inv_ex: _inv_ex, aten._linalg_det: _det, aten._linalg_slogdet: _slogdet, aten.cholesky: _cholesky,
        aten.linalg_cholesky_ex: lambda a, *, upper=False, check_errors=False: (_cholesky(a, upper), _info(a)),
        aten.cholesky_solve: _cholesky_solve, aten._cholesky_solve_helper: _cholesky_solve,
        aten.cholesky_inverse: lambda factor, upper=False: _cholesky_solve(_eye(factor, factor.shape[-1]), factor, upper),
        aten.linalg_ldl_factor_ex: _ldl_factor_ex, aten.linalg_qr: _qr,
        aten.linalg_solve_triangular: _solve_triangular, aten.triangular_solve: _old_triangular_solve,
        aten._linalg_check_errors: lambda *_, **__: None,
    }  # fmt: skip
    return {operator.default: _where_it_fits(rule) for operator, rule in found.items()}
