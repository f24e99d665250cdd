"""RMS norm of each head of queries and keys, then rotary positions, in bfloat16."""

import torch
import torch.nn as nn


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def rotated(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.q_weight, self.k_weight = (nn.Parameter(1 + 0.1 * torch.randn(size, dtype=torch.bfloat16)) for _ in range(2))

    def forward(self, q, k, cos, sin):
        q, k = rms_norm(q, self.q_weight), rms_norm(k, self.k_weight)
        return rotated(q, cos, sin).transpose(1, 2), rotated(k, cos, sin).transpose(1, 2)


batch = 2
tokens = 4096
heads = 16
kv_heads = 8
size = 128


def get_inputs():
    q = torch.randn(batch, tokens, heads, size, dtype=torch.bfloat16)
    k = torch.randn(batch, tokens, kv_heads, size, dtype=torch.bfloat16)
    angles = torch.rand(tokens, 1, size) * 6.283
    return [q, k, angles.cos().bfloat16(), angles.sin().bfloat16()]


def get_init_inputs():
    return [size]
