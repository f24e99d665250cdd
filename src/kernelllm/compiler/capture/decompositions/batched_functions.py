"""Functions inside of ``torch.vmap`` by plain operators: torch's own rules for a batch of them pin sizes, or take none that are symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._functorch import TransformType, get_interpreter_stack


def _batched(x: torch.Tensor) -> bool:
    return x.is_floating_point() and any(level.key() == TransformType.Vmap for level in get_interpreter_stack() or ())


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def gelu(_: Any, x: torch.Tensor, approximate: str = "none") -> Any:
    if not _batched(x):
        return NotImplemented
    wide = _wide(x)
    if approximate == "none":
        return (wide * 0.5 * (1 + torch.erf(wide * math.sqrt(0.5)))).to(x.dtype)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
    return (wide * 0.5 * (1 + torch.tanh(inner))).to(x.dtype)


def layer_norm(_: Any, x: torch.Tensor, normalized_shape: Sequence[Any], weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    if not _batched(x):
        return NotImplemented
    variance, mean = torch.var_mean(_wide(x), list(range(-len(normalized_shape), 0)), correction=0, keepdim=True)
    out = (_wide(x) - mean) * torch.rsqrt(variance + eps)
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(x.dtype)


NN_FUNCTIONS: dict[str, Callable[..., Any]] = {"gelu": gelu, "layer_norm": layer_norm}
"""Rules for functions of ``torch.nn.functional``."""
__all__ = ["NN_FUNCTIONS"]
