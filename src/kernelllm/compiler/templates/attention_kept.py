"""Attention in half precision without a mask whose gradients follow: cuDNN's backward, from the sums that the forward keeps."""

import math

import torch

from .attention_half import attention_of_many
from .attention_half_backward import half_attention_backward


def attention_with_sums(q, k, v, is_causal=False, scale=None):
    """half_attention() in the layout of q, and the logarithm of each query's sum [B,H,T,1]; one width for q, k and v."""
    batch, heads, t, d = q.shape
    out = torch.empty_like(q)
    sums = torch.empty((batch, heads, t, 1), device=q.device, dtype=torch.float32)
    factor = 1.0 / math.sqrt(d) if scale is None else float(scale)
    if q.is_cuda and d > 64:  # cuDNN's is faster
        kept = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, is_causal, False, scale=factor)
        return kept[0], kept[1]
    return attention_of_many(q, k, v, None, 0, is_causal, factor, False, out, sums), sums


def attention_gradients(grad, q, k, v, out, sums, is_causal=False, scale=None):
    """Gradients of attention_with_sums() for q, k and v, each in the layout of what it belongs to."""
    if q.is_cuda:
        seed = torch.empty((), device=q.device, dtype=torch.int64)  # of no dropout
        return torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            grad, q, k, v, out, sums, seed, seed, None, None, None, q.shape[2], k.shape[2], 0.0, is_causal,
            scale=1.0 / math.sqrt(q.shape[3]) if scale is None else float(scale),
        )
    found = half_attention_backward(q, k, v, out, grad, is_causal, scale)
    return tuple(torch.empty_like(x).copy_(g) for x, g in zip((q, k, v), found, strict=True))
