"""Masked places get a fixed value, all others are clamped."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, low, high, fill):
        super().__init__()
        self.low = low
        self.high = high
        self.fill = fill

    def forward(self, x, mask):
        return torch.where(mask, torch.full_like(x, self.fill), x.clamp(self.low, self.high))


rows = 512
columns = 2048
low = -0.5
high = 1.5
fill = -7.0


def get_inputs():
    return [torch.randn(rows, columns), torch.rand(rows, columns) < 0.3]


def get_init_inputs():
    return [low, high, fill]
