"""Average pooling over time."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel_size, stride):
        super().__init__()
        self.pool = nn.AvgPool1d(kernel_size, stride)

    def forward(self, x):
        return self.pool(x)


batch_size = 8
channels = 64
length = 1000
kernel_size = 5
stride = 3


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [kernel_size, stride]
