"""RMS normalisation with a weight."""

import torch
import torch.nn as nn

batch = 4
length = 12
hidden = 80


class Model(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def get_inputs():
    return [torch.randn(batch, length, hidden)]


def get_init_inputs():
    return [hidden]
