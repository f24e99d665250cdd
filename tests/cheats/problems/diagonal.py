"""Rows scaled by a vector, written as a product with a diagonal matrix."""

import torch
import torch.nn as nn

N = 48
M = 40


class Model(nn.Module):
    def forward(self, a, b):
        return torch.diag(a) @ b


def get_inputs():
    return [torch.randn(N), torch.randn(N, M)]


def get_init_inputs():
    return []
