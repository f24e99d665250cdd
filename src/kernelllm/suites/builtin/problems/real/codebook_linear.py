"""A linear layer whose 4-bit weights are places in a table of 16 values, with a scale a block, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, blocks, block, out):
        super().__init__()
        self.register_buffer("packed", torch.randint(0, 256, (out, blocks, block // 2), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(out, blocks, 1) * 0.05)
        self.register_buffer("table", torch.linspace(-1, 1, 16).pow(3))
        self.bias = nn.Parameter(torch.zeros(out, dtype=torch.bfloat16))

    def forward(self, x):
        places = torch.stack((self.packed >> 4, self.packed & 15), dim=-1).flatten(2)
        weight = (self.table[places.int()] * self.scale).flatten(1).to(x.dtype)
        return F.linear(x, weight, self.bias)


tokens = 512
blocks = 64
block = 64
out = 4096


def get_inputs():
    return [torch.randn(tokens, blocks * block, dtype=torch.bfloat16)]


def get_init_inputs():
    return [blocks, block, out]
