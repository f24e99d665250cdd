"""Pixels of a diffusion model attend to the words of a prompt, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, words, heads):
        super().__init__()
        self.heads = heads
        self.q, self.out = nn.Linear(width, width, bias=False, dtype=torch.float16), nn.Linear(width, width, dtype=torch.float16)
        self.k, self.v = (nn.Linear(words, width, bias=False, dtype=torch.float16) for _ in range(2))

    def forward(self, x, prompt):
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in (self.q(x), self.k(prompt), self.v(prompt)))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


batch = 2
pixels = 4096
heads = 10
size = 64
prompt = 77
words = 2048


def get_inputs():
    return [torch.randn(batch, pixels, heads * size, dtype=torch.float16), torch.randn(batch, prompt, words, dtype=torch.float16)]


def get_init_inputs():
    return [heads * size, words, heads]
