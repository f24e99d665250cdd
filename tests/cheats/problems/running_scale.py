"""What a buffer holds, and the output is scaled by, follows from all calls so far."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("square", torch.ones(width))

    def forward(self, x):
        self.square.mul_(0.9).add_(x.square().mean(0), alpha=0.1)
        return x * torch.rsqrt(self.square + 1e-5), self.square.clone()


rows = 256
width = 192


def get_inputs():
    return [torch.randn(rows, width) * 3]


def get_init_inputs():
    return [width]
