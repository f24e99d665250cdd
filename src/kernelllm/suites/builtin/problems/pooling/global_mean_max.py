"""For each channel the mean and the maximum over the image, side by side."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1)


batch_size = 16
channels = 64
height = width = 32


def get_inputs():
    return [torch.randn(batch_size, channels, height, width) + torch.randn(channels, 1, 1)]


def get_init_inputs():
    return []
