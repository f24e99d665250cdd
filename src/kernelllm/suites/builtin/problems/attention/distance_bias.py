"""Attention with a penalty for distance that differs from head to head."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k, v, slopes):
        positions = torch.arange(q.shape[2], device=q.device, dtype=q.dtype)
        distance = (positions[:, None] - positions[None, :]).abs()
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 - slopes[:, None, None] * distance
        return scores.softmax(dim=-1) @ v


batch_size = 2
heads = 4
tokens = 96
width = 32


def get_inputs():
    qkv = [torch.randn(batch_size, heads, tokens, width) for _ in range(3)]
    return [*qkv, torch.rand(heads) * 0.2]


def get_init_inputs():
    return []
