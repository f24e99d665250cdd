"""Barely differs from its input."""

import torch
import torch.nn as nn

rows = 32
columns = 128


class Model(nn.Module):
    def forward(self, x):
        return x + 2e-5 * torch.tanh(x)


def get_inputs():
    return [torch.rand(rows, columns) + 0.5]


def get_init_inputs():
    return []
