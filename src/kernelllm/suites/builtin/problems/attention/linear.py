"""Attention without softmax: positive features, and keys times values summed once."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = k.transpose(-2, -1) @ v
        norm = (q * k.sum(dim=-2, keepdim=True)).sum(dim=-1, keepdim=True)
        return q @ state / norm


batch_size = 2
heads = 4
tokens = 192
width = 32


def get_inputs():
    return [torch.randn(batch_size, heads, tokens, width) for _ in range(3)]


def get_init_inputs():
    return []
