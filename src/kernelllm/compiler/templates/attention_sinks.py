"""Attention in half precision whose softmax has one more score for each head, which takes weight from the keys."""

import math

import torch

from .attention_half import attention_of_many


def sink_attention(q, k, v, mask, sinks, scale=None):
    """half_attention() with scores ``sinks`` [H] that no value belongs to; for a scale above 0."""
    batch, heads, t, d = q.shape
    out = torch.empty((batch, t, heads, v.shape[3]), device=q.device, dtype=q.dtype).transpose(1, 2)
    if out.numel() == 0:
        return out
    kind = 0 if mask is None else 1 if mask.dtype == torch.bool else 2
    wide = mask.expand(batch, heads, t, k.shape[2]) if kind else None
    factor = 1.0 / math.sqrt(d) if scale is None else float(scale)
    return attention_of_many(q, k, v, wide, kind, False, factor, False, out, None, sinks.contiguous())
