"""Barely varies: every output is one, up to the usual tolerances."""

import torch
import torch.nn as nn

rows = 32
columns = 128


class Model(nn.Module):
    def forward(self, x):
        return 1.0 + 1e-5 * torch.sin(x)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
