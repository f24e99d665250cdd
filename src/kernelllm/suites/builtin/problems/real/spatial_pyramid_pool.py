"""Maxima over growing windows beside each other between two convolutions, as in a detector's neck, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, window):
        super().__init__()
        self.window = window
        self.before = nn.Conv2d(channels, channels // 2, 1, bias=False, dtype=torch.float16)
        self.after = nn.Conv2d(2 * channels, channels, 1, bias=False, dtype=torch.float16)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n, dtype=torch.float16) for n in (channels // 2, channels))
        self.eval()

    def forward(self, x):
        parts = [F.silu(self.norms[0](self.before(x)))]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], self.window, 1, self.window // 2))
        return F.silu(self.norms[1](self.after(torch.cat(parts, dim=1))))


batch = 32
channels = 512
side = 20
window = 5


def get_inputs():
    return [torch.randn(batch, channels, side, side, dtype=torch.float16)]


def get_init_inputs():
    return [channels, window]
