import torch
import torch.nn as nn

batch = 8
channels = 24
height = 72
width = 80


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs():
    return [channels]
