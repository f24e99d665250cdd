"""Layers that cross features with the input of a recommendation model, in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, dtype=torch.bfloat16) for _ in range(layers))

    def forward(self, first):
        x = first
        for layer in self.layers:
            x = first * layer(x) + x
        return x


batch = 16384
width = 1024
layers = 3


def get_inputs():
    return [torch.randn(batch, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, layers]
