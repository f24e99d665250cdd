"""Max pooling over time with gaps in the window."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel_size, stride, dilation):
        super().__init__()
        self.pool = nn.MaxPool1d(kernel_size, stride, dilation=dilation)

    def forward(self, x):
        return self.pool(x)


batch_size = 8
channels = 64
length = 1000
kernel_size = 4
stride = 2
dilation = 3


def get_inputs():
    return [torch.randn(batch_size, channels, length)]


def get_init_inputs():
    return [kernel_size, stride, dilation]
