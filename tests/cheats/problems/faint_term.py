"""A term that hardly counts at the problem's own parameters."""

import torch
import torch.nn as nn

rows = 32
columns = 160


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return torch.relu(x + 1e-6 * self.gate * x.flip(0))


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
