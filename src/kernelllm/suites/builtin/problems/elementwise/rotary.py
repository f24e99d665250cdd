"""Rotary position embedding: the two halves of each head rotated by an angle for each position."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


batch_size = 4
heads = 8
tokens = 256
half = 32


def get_inputs():
    angle = torch.rand(tokens, half) * 6.28
    return [torch.randn(batch_size, heads, tokens, 2 * half), torch.cos(angle), torch.sin(angle)]


def get_init_inputs():
    return []
