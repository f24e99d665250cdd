"""Rows in reverse order, doubled."""

import torch
import torch.nn as nn

M = 40
N = 24


class Model(nn.Module):
    def forward(self, x):
        return x.flip(0) * 2


def get_inputs():
    return [torch.randn(M, N)]


def get_init_inputs():
    return []
