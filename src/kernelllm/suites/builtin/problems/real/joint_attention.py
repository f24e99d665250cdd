"""Words and pixels of a diffusion transformer attend to each other, each with projections and norms of its own, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Stream(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.size = size
        self.qkv, self.out = (nn.Linear(width, n * width, dtype=torch.bfloat16) for n in (3, 1))
        self.q_norm, self.k_norm = (nn.RMSNorm(size, eps=1e-6, dtype=torch.bfloat16) for _ in range(2))

    def heads(self, x, shift, scale):
        x = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
        q, k, v = self.qkv(x).unflatten(2, (3, -1, self.size)).unbind(2)
        return self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2), v.transpose(1, 2)


class Model(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.words, self.pixels = Stream(width, size), Stream(width, size)

    def forward(self, words, pixels, change):
        shifts = change.chunk(6, dim=1)
        both = zip(self.words.heads(words, *shifts[:2]), self.pixels.heads(pixels, *shifts[2:4]), strict=True)
        q, k, v = (torch.cat(pair, dim=2) for pair in both)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        first, second = attended.split([words.shape[1], pixels.shape[1]], dim=1)
        return words + shifts[4][:, None] * self.words.out(first), pixels + shifts[5][:, None] * self.pixels.out(second)


batch = 2
words = 154
pixels = 1024
heads = 24
size = 64


def get_inputs():
    sizes = [(batch, words, heads * size), (batch, pixels, heads * size), (batch, 6 * heads * size)]
    return [torch.randn(*shape, dtype=torch.bfloat16) for shape in sizes]


def get_init_inputs():
    return [heads * size, size]
