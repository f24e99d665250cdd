"""A block of a convolutional network: depthwise, norm over channels, two pointwise layers, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels, dtype=torch.float16)
        self.norm = nn.LayerNorm(channels, eps=1e-6, dtype=torch.float16)
        self.up, self.down = nn.Linear(channels, 4 * channels, dtype=torch.float16), nn.Linear(4 * channels, channels, dtype=torch.float16)
        self.scale = nn.Parameter(0.1 * torch.ones(channels, dtype=torch.float16))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


batch = 64
channels = 192
side = 28


def get_inputs():
    return [torch.randn(batch, channels, side, side, dtype=torch.float16)]


def get_init_inputs():
    return [channels]
