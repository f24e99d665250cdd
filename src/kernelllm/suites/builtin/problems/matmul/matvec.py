"""A matrix times a vector, plus a vector."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, x, y):
        return a @ x + y


rows = 1000
columns = 1500


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(columns), torch.randn(rows)]


def get_init_inputs():
    return []
