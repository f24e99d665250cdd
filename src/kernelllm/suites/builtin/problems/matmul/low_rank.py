"""A linear layer with a low-rank adapter beside it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, rank, scale):
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.randn(in_features, out_features) / in_features**0.5)
        self.down = nn.Parameter(torch.randn(in_features, rank) / in_features**0.5)
        self.up = nn.Parameter(torch.randn(rank, out_features) / rank**0.5)

    def forward(self, x):
        return x @ self.weight + (x @ self.down) @ self.up * self.scale


batch_size = 128
in_features = 256
out_features = 320
rank = 16
scale = 0.5


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, rank, scale]
