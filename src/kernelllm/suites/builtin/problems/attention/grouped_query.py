"""Causal attention in which several query heads share one head of keys and values."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        share = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


batch_size = 2
kv_heads = 2
share = 4
tokens = 96
width = 32


def get_inputs():
    q = torch.randn(batch_size, kv_heads * share, tokens, width)
    return [q, torch.randn(batch_size, kv_heads, tokens, width), torch.randn(batch_size, kv_heads, tokens, width)]


def get_init_inputs():
    return []
