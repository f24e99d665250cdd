"""The bucket that each number falls into; the edges are running sums of a buffer's widths."""

import torch
import torch.nn as nn

rows = 15
columns = 42
bins = 500


class Model(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.register_buffer("widths", torch.full((bins,), 0.008))

    def forward(self, x):
        return torch.bucketize(x, torch.cumsum(self.widths, 0) - 2.0)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [bins]
