import torch
import torch.nn as nn

rows = 60
width = 48
updates = 50


class Model(nn.Module):
    """Some rows are replaced, a few of them twice."""

    def forward(self, x, index, source):
        return x.index_copy(0, index, source)


def get_inputs():
    return [torch.randn(rows, width), torch.randint(0, rows, (updates,)), torch.randn(updates, width)]


def get_init_inputs():
    return []
