"""Attention inside windows of an image, with a learned bias for each offset, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, heads, window):
        super().__init__()
        self.window = window
        self.bias = nn.Parameter(torch.randn(heads, window * window, window * window, dtype=torch.float16))

    def windows(self, x):
        batch, heads, height, width, size = x.shape
        x = x.view(batch, heads, height // self.window, self.window, width // self.window, self.window, size)
        return x.permute(0, 2, 4, 1, 3, 5, 6).reshape(-1, heads, self.window * self.window, size)

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(self.windows(q), self.windows(k), self.windows(v), self.bias)


batch = 16
heads = 6
rows = 8
window = 7
size = 32


def get_inputs():
    return [torch.randn(batch, heads, rows * window, rows * window, size, dtype=torch.float16) for _ in range(3)]


def get_init_inputs():
    return [heads, window]
