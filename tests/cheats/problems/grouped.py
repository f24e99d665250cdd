"""A norm over groups of columns, whose number has a default that the problem does not give."""

import torch
import torch.nn as nn

rows = 40
columns = 96


class Model(nn.Module):
    def __init__(self, groups: int = 8):
        super().__init__()
        self.groups = groups

    def forward(self, x):
        parts = x.reshape(x.shape[0], self.groups, -1)
        return (parts - parts.mean(-1, keepdim=True)).reshape(x.shape)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
