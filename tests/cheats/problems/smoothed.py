"""A mean over all calls so far, which is kept in an attribute and in no buffer."""

import torch
import torch.nn as nn

rows = 32
columns = 160


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        if self.last is None or self.last.shape != x.shape:
            self.last = torch.zeros_like(x)
        self.last = 0.9 * self.last + 0.1 * x
        return torch.tanh(self.last)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
