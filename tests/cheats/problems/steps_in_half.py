"""Half precision: each step makes more of what the one before rounded."""

import torch
import torch.nn as nn

rows = 32
columns = 160


class Model(nn.Module):
    def forward(self, x):
        for _ in range(6):
            x = 1 - 1.6 * x * x
        return x


def get_inputs():
    return [2 * torch.rand(rows, columns, dtype=torch.float16) - 1]


def get_init_inputs():
    return []
