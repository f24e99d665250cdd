"""Two functions of one input."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x), F.relu(x)


rows, cols = 40, 70


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
