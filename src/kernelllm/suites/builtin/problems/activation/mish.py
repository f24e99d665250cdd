"""Mish: x * tanh(softplus(x))."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return x * torch.tanh(F.softplus(x))


batch_size = 8
channels = 32
height = width = 64


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return []
