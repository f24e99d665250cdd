"""SiLU, scaled and moved by parameters."""

import torch
import torch.nn as nn

batch = 12
hidden = 40


class Model(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)
        self.bias = nn.Parameter(torch.rand(hidden))

    def forward(self, x):
        return torch.nn.functional.silu(x) * self.weight + self.bias


def get_inputs():
    return [torch.randn(batch, hidden)]


def get_init_inputs():
    return [hidden]
