"""The first result is a view of the input."""

import torch
import torch.nn as nn

rows = 32
columns = 160


class Model(nn.Module):
    def forward(self, x):
        return x[:, ::7], x + 1


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
