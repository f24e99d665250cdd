"""Causal attention with a penalty for distance that differs from head to head, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v, slopes):
        at = torch.arange(q.shape[2], device=q.device)
        behind = (at[:, None] - at[None, :]).to(q.dtype)
        bias = torch.where(behind < 0, float("-inf"), -slopes[:, None, None] * behind)
        return F.scaled_dot_product_attention(q, k, v, bias)


batch = 2
heads = 16
tokens = 2048
size = 128


def get_inputs():
    qkv = [torch.randn(batch, heads, tokens, size, dtype=torch.bfloat16) for _ in range(3)]
    return [*qkv, (torch.rand(heads) * 0.1).bfloat16()]


def get_init_inputs():
    return []
