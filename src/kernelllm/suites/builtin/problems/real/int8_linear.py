"""A linear layer whose int8 weights are scaled back row by row, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (out, width), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(out, dtype=torch.bfloat16) * 0.01)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


tokens = 16
width = 4096
out = 4096


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, out]
