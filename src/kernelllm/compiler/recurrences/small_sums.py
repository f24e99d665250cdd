"""Products of a step as sums: a program that goes through all steps has the matrices of one row alone."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten


def _mm(a: Any, b: Any) -> Any:
    return (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)


def _bmm(a: Any, b: Any) -> Any:
    return (a.unsqueeze(3) * b.unsqueeze(1)).sum(2)


def _mv(a: Any, b: Any) -> Any:
    return (a * b).sum(1)


def _dot(a: Any, b: Any) -> Any:
    return (a * b).sum()


def _added(product: Any) -> Any:
    def rule(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        made = product(a, b)
        made = made if alpha == 1 else made * alpha
        return made if beta == 0 else made + (c if beta == 1 else c * beta)

    return rule


def _var_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dims = list(range(x.dim())) if dim is None else [d % x.dim() for d in dim]
    count: Any = 1
    for d in dims:
        count = count * x.shape[d]
    mean = x.sum(dims, keepdim=True) / count
    apart = x - mean
    var = (apart * apart).sum(dims, keepdim=keepdim) / (count - (1 if correction is None else correction))
    return var, mean if keepdim else mean.sum(dims)


def _var(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _var_mean(x, dim, correction=correction, keepdim=keepdim)[0]


def rules() -> dict[Any, Any]:
    """Decompositions of products and of what Inductor has as a reduction of its own."""
    return {
        aten.mm.default: _mm, aten.bmm.default: _bmm, aten.mv.default: _mv, aten.dot.default: _dot,
        aten.addmm.default: _added(_mm), aten.baddbmm.default: _added(_bmm),
        aten.var_mean.correction: _var_mean, aten.var.correction: _var,
    }  # fmt: skip
