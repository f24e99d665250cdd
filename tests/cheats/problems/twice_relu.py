"""The same numbers in two tensors, into which a user may write separately."""

import torch
import torch.nn as nn

rows = 32
columns = 160


class Model(nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        return y, y.clone()


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
