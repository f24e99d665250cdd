"""Complex numbers."""

import torch
import torch.nn as nn

rows = 32
columns = 160


class Model(nn.Module):
    def forward(self, z):
        return torch.abs(z)


def get_inputs():
    return [torch.randn(rows, columns, dtype=torch.complex64)]


def get_init_inputs():
    return []
