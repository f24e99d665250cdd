"""Each image's sum of its products with one of weights."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, size, size)[None])

    def forward(self, x):
        return (x * self.weight).sum((1, 2, 3))


batch, channels, size = 8, 3, 20


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [channels, size]
