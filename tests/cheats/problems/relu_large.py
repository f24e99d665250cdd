"""Elementwise, at a size that a CPU is not tried at."""

import torch
import torch.nn as nn

rows = 1280
columns = 4096


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
