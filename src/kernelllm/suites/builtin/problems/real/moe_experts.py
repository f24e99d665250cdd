"""Gated feed-forward layers of many experts, each over its own tokens, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, experts, width, hidden):
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, width, 2 * hidden, dtype=torch.bfloat16) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width, dtype=torch.bfloat16) * hidden**-0.5)

    def forward(self, x):
        gate, up = torch.bmm(x, self.up).chunk(2, dim=-1)
        return torch.bmm(F.silu(gate) * up, self.down)


experts = 32
capacity = 256
width = 1024
hidden = 768


def get_inputs():
    return [torch.randn(experts, capacity, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [experts, width, hidden]
