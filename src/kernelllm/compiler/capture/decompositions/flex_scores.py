"""torch's flex attention as products, a softmax and the caller's own functions, or as one attention where those only mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

_LN2 = math.log(2.0)


def attention(query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, scale: Any, options: Any) -> Any:
    """In place of torch's operator of these arguments (:func:`kernelllm.problems.unfused_flex.unfused_flex`)."""
    from torch.nn.attention import flex_attention as flex

    where = [torch.arange(n, device=query.device) for n in (*query.shape[:3], key.shape[2])]
    if key.shape[0] != query.shape[0]:
        key, value = (t.expand(query.shape[0], -1, -1, -1) for t in (key, value))
    grouped, plain = query.shape[1] != key.shape[1], score_mod is flex._identity and not options["wanted"]
    given = None if str(scale) == str(1.0 / math.sqrt(query.shape[-1])) else scale  # templates take a number, or the usual one
    if plain and _is_causal(block_mask[-1]):
        return F.scaled_dot_product_attention(query, key, value, None, is_causal=True, scale=given, enable_gqa=grouped), None, None
    mask = None if block_mask[-1] is flex.noop_mask else _narrow(_everywhere(block_mask[-1], (), where)())
    if plain:
        return F.scaled_dot_product_attention(query, key, value, mask, scale=given, enable_gqa=grouped), None, None
    if grouped:
        key, value = (t.repeat_interleave(query.shape[1] // key.shape[1], 1) for t in (key, value))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * scale
    scores = scores if score_mod is flex._identity else _everywhere(score_mod, (0,), where)(scores)
    scores = scores if mask is None else torch.where(mask, scores, -math.inf)
    weights = torch.where(scores.amax(-1, keepdim=True) == -math.inf, 0.0, scores.softmax(-1))  # a row that sees nothing is zero
    out = weights.to(query.dtype) @ value.to(query.dtype)
    return (out, scores.logsumexp(-1) / _LN2, scores.amax(-1) / _LN2) if options["wanted"] else (out, None, None)


def _everywhere(function: Any, prefix: tuple[int, ...], where: list[torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The function of one position, at all of them."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    def call(*scores: torch.Tensor) -> torch.Tensor:
        with TransformGetItemToIndex():
            found: torch.Tensor = _vmap_for_bhqkv(function, prefix=prefix)(*scores, *where)
            return found

    return call


class _Index:
    """A position that can only be compared with another."""

    def __ge__(self, other: object) -> Any:
        return self, other

    def __le__(self, other: object) -> Any:
        return other, self


def _is_causal(mask_mod: Any) -> bool:
    """Whether the function is ``query >= key`` and nothing else."""
    batch, head, row, column = (_Index() for _ in range(4))
    try:
        found = mask_mod(batch, head, row, column)
    except Exception:  # noqa: BLE001 - code of others, which does more with positions
        return False
    return isinstance(found, tuple) and len(found) == 2 and found[0] is row and found[1] is column


def _narrow(mask: torch.Tensor) -> torch.Tensor:
    """Without the copies for batch and heads where it is the same for all of them."""
    for dim in range(2):
        mask = mask.narrow(dim, 0, 1) if mask.stride(dim) == 0 else mask
    return mask


__all__ = ["attention"]
