"""Causal attention of grouped queries whose scores are capped by a tanh, in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, cap):
        super().__init__()
        self.cap = cap

    def forward(self, q, k, v):
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        scores = torch.tanh((q @ k.transpose(2, 3)) * (q.shape[3] ** -0.5 / self.cap)) * self.cap
        hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
        weights = scores.float().masked_fill(hidden, float("-inf")).softmax(dim=-1)
        return (weights.to(v.dtype) @ v).transpose(1, 2).flatten(2)


batch = 2
heads = 8
kv_heads = 4
tokens = 2048
size = 256
cap = 50.0


def get_inputs():
    q = torch.randn(batch, heads, tokens, size, dtype=torch.bfloat16)
    return [q, *(torch.randn(batch, kv_heads, tokens, size, dtype=torch.bfloat16) for _ in range(2))]


def get_init_inputs():
    return [cap]
