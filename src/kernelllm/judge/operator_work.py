"""Computes how much work one call of an operator is: FLOPs of heavy ones by formulas or bounds, elements of light ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelllm.judge.checks.light_operators import as_complex
from kernelllm.judge.checks.operator_families import family, heavy, operator, weight
from kernelllm.judge.tensor_leaves import tensor_leaves
from kernelllm.problems.flops import heavy_flops

_LISTS = ("_foreach_", "_fused_ad", "_fused_sgd")
"""Operators on lists of tensors that belong together, position by position."""
_PRODUCTS_OF_COMPLEX = 4
"""Products of real numbers in one of complex numbers."""
_WIDE = (torch.float64, torch.int64, torch.complex128)


def heavy_work(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOPs of a heavy operator, with 32 bits as the unit: two numbers can be packed into one that is wider, or complex. 0 for others."""
    name = str(func)
    amount = heavy_flops(func, args, kwargs, result)
    if not amount and heavy(name):
        amount = (_convolved if family(name) == "convolution" else product_bound)(args, kwargs, result)
    if not amount or family(name) == "fourier":
        return amount
    made = tensor_leaves(result)[:1]  # what follows it (positions, seeds) is no product
    products = _PRODUCTS_OF_COMPLEX if any(t.is_complex() for t in [*tensor_leaves(args), *made]) else 1
    return amount * products * (2 if any(t.dtype in _WIDE for t in made) else 1)


def light_work(name: str, args: Any, kwargs: Any, result: Any) -> int:
    """Operations of an operator that is not heavy: a few for each element of its largest operand or result."""
    given = [*args, *kwargs.values(), result]
    parts = [tensor_leaves(part) for part in given] if any(part in name for part in _LISTS) else [[t] for t in tensor_leaves(given)]
    products = as_complex(operator(name)) if any(t.is_complex() for t in tensor_leaves(given)) else 1
    return weight(name) * products * max((sum(_values(t) for t in part) for part in parts), default=0)


def product_bound(args: Any, kwargs: Any, result: Any) -> int:
    """The most FLOPs of a matrix product of these operands: of an (m, k) and a (k, n) matrix, 2 m k n, which is two times the root of
    the product of all three sizes. The two largest operands count; a single one counts twice, and one whose size cannot be seen as any.
    """
    given = [*args, *(value for name, value in kwargs.items() if not name.startswith("out"))]
    sizes = sorted(t.numel() for t in tensor_leaves(given))[-2:]
    made = max((t.numel() for t in tensor_leaves(result)), default=max(sizes, default=1))
    if any(isinstance(part, torch.ScriptObject) for part in tree_leaves(given)):
        return 2 * max(sizes, default=1) * made
    return 2 * math.isqrt(math.prod(sizes if len(sizes) != 1 else 2 * sizes) * made)


def composite(func: Any, args: Any, kwargs: Any) -> Callable[..., Any] | None:
    """What an operator is made of, if it is made of others: below autograd (in inference mode, within a custom operator) torch shows
    such a one as a whole. None for any other operator, and for operands that are not plain tensors."""
    given = tensor_leaves((args, kwargs))
    plain = all(t.layout is torch.strided and not t.is_nested and not t.is_quantized for t in given)
    made: Callable[..., Any] | None = func.decompose if plain and _made_of_others(func, given[0].device.type if given else "cpu") else None
    return made


@cache
def _made_of_others(func: Any, device: str) -> bool:
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return False
    kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return kernel(func.name(), "CompositeImplicitAutograd") and not kernel(func.name(), "CUDA" if device == "cuda" else "CPU")


def _convolved(args: Any, kwargs: Any, result: Any) -> int:
    """The most FLOPs of a convolution: its weight, second of the operands, is of (out, in, window), transposed (in, out, window)."""
    operands = [t for t in tensor_leaves(args) if t.dim() > 2]
    if len(operands) < 2:
        return product_bound(args, kwargs, result)
    at = max(operands[0].numel(), *(t.numel() for t in tensor_leaves(result)))
    return 2 * at * operands[1].numel() // max(operands[1].shape[0], 1)


def _values(tensor: torch.Tensor) -> int:
    """Elements, in units of 32 bits where they are wider: two can be packed into one. A sparse tensor may hold many for one place."""
    count = max(tensor.numel(), tensor._values().numel()) if tensor.layout is torch.sparse_coo else tensor.numel()
    return count * max(1, tensor.itemsize // 4)
