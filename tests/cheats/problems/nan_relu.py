"""NaN becomes zero, the rest lies between zero and eight."""

import torch
import torch.nn as nn

rows = 32
columns = 160


class Model(nn.Module):
    def forward(self, x):
        return torch.nan_to_num(x).clamp(0.0, 8.0)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
