"""The feed-forward layer of a diffusion model's transformer, gate and value in one product, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, 8 * width, dtype=torch.float16)
        self.out = nn.Linear(4 * width, width, dtype=torch.float16)

    def forward(self, x):
        value, gate = self.proj(x).chunk(2, dim=-1)
        return self.out(value * F.gelu(gate))


batch = 2
tokens = 4096
width = 320


def get_inputs():
    return [torch.randn(batch, tokens, width, dtype=torch.float16)]


def get_init_inputs():
    return [width]
