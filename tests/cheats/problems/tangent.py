"""A function and its derivative along a direction."""

import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, t):
        y, dy = torch.func.jvp(lambda v: torch.sin(v) * v, (x,), (t,))
        return y + dy


rows, columns = 64, 100


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs():
    return []
