"""Doubles height and width by repeating pixels, in bfloat16, and adds the skip connection."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, skip):
        return F.interpolate(x, scale_factor=2, mode="nearest") + skip


batch_size = 4
channels = 32
height = width = 32


def get_inputs():
    x = torch.randn(batch_size, channels, height, width, dtype=torch.bfloat16)
    return [x, torch.randn(batch_size, channels, 2 * height, 2 * width, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
