"""Softmax of each row of several heads."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


batch, heads, length, width = 2, 3, 8, 24


def get_inputs():
    return [torch.randn(batch, heads, length, width)]


def get_init_inputs():
    return []
