"""Self-attention of a language model over a prompt: projections, rotary positions, shared key heads, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def rotated(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Model(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        size = width // heads
        self.q, self.o = (nn.Linear(width, width, bias=False, dtype=torch.bfloat16) for _ in range(2))
        self.k, self.v = (nn.Linear(width, kv_heads * size, bias=False, dtype=torch.bfloat16) for _ in range(2))

    def forward(self, x, cos, sin):
        batch, tokens, width = x.shape
        q = rotated(self.q(x).view(batch, tokens, self.heads, -1).transpose(1, 2), cos, sin)
        k = rotated(self.k(x).view(batch, tokens, self.kv_heads, -1).transpose(1, 2), cos, sin)
        v = self.v(x).view(batch, tokens, self.kv_heads, -1).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(out.transpose(1, 2).reshape(batch, tokens, width))


batch = 1
tokens = 2048
heads = 16
kv_heads = 8
size = 128


def get_inputs():
    angles = torch.rand(tokens, size) * 6.283
    x = torch.randn(batch, tokens, heads * size, dtype=torch.bfloat16)
    return [x, angles.cos().bfloat16(), angles.sin().bfloat16()]


def get_init_inputs():
    return [heads * size, heads, kv_heads]
