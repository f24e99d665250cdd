"""A causal depthwise convolution over time, then SiLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel_size) / kernel_size**0.5)
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        padded = F.pad(x, (self.weight.shape[-1] - 1, 0))
        return F.silu(F.conv1d(padded, self.weight, self.bias, groups=x.shape[1]))


batch_size = 4
channels = 128
kernel_size = 4
tokens = 512


def get_inputs():
    return [torch.randn(batch_size, channels, tokens)]


def get_init_inputs():
    return [channels, kernel_size]
