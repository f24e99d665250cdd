"""Operators that mixtures of experts call: ``bincount`` of the choices, and grouped products of each expert's rows with its matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelllm.compiler import template_ops
from kernelllm.compiler.options import Options

aten = torch.ops.aten


def rules(options: Options) -> dict[Any, Callable[..., Any]]:
    """The decompositions, by operator. Where products are left to torch, counts are not: it waits for the largest number."""
    if options.extern == "allow" and not options.library:
        return {}
    found: dict[Any, Callable[..., Any]] = {aten.bincount.default: _bincount}
    if not options.library:
        found |= {aten.histc.default: _histc, aten._grouped_mm.default: _grouped(options.matmul_tf32)}
    return found


def _bincount(x: Any, weights: Any = None, minlength: Any = 0) -> Any:
    """As many counts as are asked for at least. Where a number is larger, the file says so; without that many, torch counts."""
    fits = isinstance(minlength, torch.SymInt) or minlength > 1
    return template_ops.register().bincount(x, weights, minlength) if fits else NotImplemented


def _histc(x: Any, bins: Any = 100, min: float = 0, max: float = 0) -> Any:
    """Between given bounds, by sums of ones. Without bounds, torch takes them from the elements."""
    if not isinstance(min, int | float) or not isinstance(max, int | float) or min >= max or x.dtype == torch.float64:
        return NotImplemented
    flat = x.reshape(-1)
    wide = flat.float()
    inside = (wide >= min) & (wide <= max)
    place = ((wide - min) * bins / (max - min)).to(torch.int64).clamp(max=bins - 1)
    counts = torch.zeros(bins, dtype=torch.float32, device=x.device)
    return counts.index_add(0, torch.where(inside, place, 0), inside.to(torch.float32)).to(x.dtype)


def _grouped(tf32: bool) -> Callable[..., Any]:
    def rule(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
        if bias is not None or out_dtype not in (None, a.dtype):
            return NotImplemented
        if a.dim() == 3 and b.dim() == 3 and offs is None:
            return torch.bmm(a, b)
        if a.dim() == 2 and b.dim() == 3 and offs is not None:
            return template_ops.register().grouped_matmul(a, b, offs, allow_tf32=tf32)
        return NotImplemented  # groups of columns, or along the sum

    return rule


__all__ = ["rules"]
