"""Scale and shift of each channel of images, and ReLU."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels) + 0.5)
        self.shift = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.relu(x * self.scale[:, None, None] + self.shift[:, None, None])


batch, channels, height, width = 2, 24, 9, 10


def get_inputs():
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs():
    return [channels]
