"""A batch norm of rows."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.bn = nn.BatchNorm1d(cols)

    def forward(self, x):
        return self.bn(x)


rows, cols = 40, 24


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]
