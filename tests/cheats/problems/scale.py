"""Elementwise with parameters."""

import torch
import torch.nn as nn

batch = 48
features = 96


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return x * self.weight + self.bias


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [features]
