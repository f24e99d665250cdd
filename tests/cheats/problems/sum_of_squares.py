"""One number of many: programs that compute parts of it must meet."""

import torch
import torch.nn as nn

n = 20000


class Model(nn.Module):
    def forward(self, x):
        return (x * x).sum()


def get_inputs():
    return [torch.randn(n)]


def get_init_inputs():
    return []
