"""A number of Python and a tensor of one element among the inputs, always the same."""

import torch
import torch.nn as nn

M = 32
N = 40


class Model(nn.Module):
    def forward(self, x, factor, shift):
        return x * factor + shift


def get_inputs():
    return [torch.randn(M, N), 3.14, torch.tensor(0.25)]


def get_init_inputs():
    return []
