"""Products of complex numbers stored as pairs in the last dimension."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        real = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
        imaginary = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
        return torch.stack([real, imaginary], dim=-1)


rows = 256
columns = 1024


def get_inputs():
    return [torch.randn(rows, columns, 2), torch.randn(rows, columns, 2)]


def get_init_inputs():
    return []
