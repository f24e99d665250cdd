"""A 1 x 1 convolution in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 1, dtype=torch.bfloat16)

    def forward(self, x):
        return self.conv(x)


batch_size = 4
in_channels = 48
out_channels = 64
height = width = 32


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [in_channels, out_channels]
