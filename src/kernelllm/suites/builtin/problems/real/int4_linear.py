"""A linear layer for single tokens whose int4 weights lie two in a byte, with a scale and an offset a group, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, groups, group, out):
        super().__init__()
        self.register_buffer("packed", torch.randint(0, 256, (out, groups, group // 2), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(out, groups, 1, dtype=torch.bfloat16) * 0.02)
        self.register_buffer("zero", torch.randint(0, 16, (out, groups, 1)).to(torch.bfloat16))

    def forward(self, x):
        low, high = self.packed & 15, self.packed >> 4
        weight = torch.stack((low, high), dim=-1).flatten(2).to(x.dtype)
        return F.linear(x, ((weight - self.zero) * self.scale).flatten(1))


tokens = 1
groups = 32
group = 128
out = 4096


def get_inputs():
    return [torch.randn(tokens, groups * group, dtype=torch.bfloat16)]


def get_init_inputs():
    return [groups, group, out]
