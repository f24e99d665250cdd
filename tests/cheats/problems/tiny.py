"""Barely varies: every output is far below the usual absolute tolerance."""

import torch
import torch.nn as nn

rows = 32
columns = 128


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * 1e-6


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
