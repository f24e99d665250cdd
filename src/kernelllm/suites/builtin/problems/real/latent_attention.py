"""Attention whose keys and values are built from a small latent vector a token, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, heads, latent, size):
        super().__init__()
        self.heads, self.size = heads, size
        self.q = nn.Linear(width, heads * size, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(width, latent, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(latent, 2 * heads * size, bias=False, dtype=torch.bfloat16)
        self.norm = nn.RMSNorm(latent, dtype=torch.bfloat16)

    def forward(self, x):
        batch, tokens, _ = x.shape
        k, v = self.up(self.norm(self.down(x))).view(batch, tokens, self.heads, 2, self.size).unbind(3)
        q = self.q(x).view(batch, tokens, self.heads, self.size)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return out.transpose(1, 2).flatten(2)


batch = 1
tokens = 2048
width = 2048
heads = 16
latent = 512
size = 128


def get_inputs():
    return [torch.randn(batch, tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, heads, latent, size]
