"""A residual block of a diffusion U-Net: group norm, SiLU, convolutions, a time embedding, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, groups, time):
        super().__init__()
        self.norm1, self.norm2 = (nn.GroupNorm(groups, channels, dtype=torch.bfloat16) for _ in range(2))
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, dtype=torch.bfloat16) for _ in range(2))
        self.time = nn.Linear(time, channels, dtype=torch.bfloat16)

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(y)))


batch = 2
channels = 320
groups = 32
side = 64
time = 1280


def get_inputs():
    return [torch.randn(batch, channels, side, side, dtype=torch.bfloat16), torch.randn(batch, time, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, groups, time]
