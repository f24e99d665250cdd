"""Twice the resolution by repetition, then a convolution, as in the decoder of an image model, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, dtype=torch.float16)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


batch = 2
channels = 256
side = 128


def get_inputs():
    return [torch.randn(batch, channels, side, side, dtype=torch.float16)]


def get_init_inputs():
    return [channels]
