"""Group norm of images, with scale and shift for each channel."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return self.norm(x)


batch_size = 8
channels = 64
groups = 8
height = width = 32


def get_inputs():
    return [torch.randn(batch_size, channels, height, width) * 2 + 1]


def get_init_inputs():
    return [channels, groups]
