"""A depthwise 3 x 3 convolution with stride 2."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, kernel_size, stride):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size, stride=stride, padding=1, groups=channels, bias=False)

    def forward(self, x):
        return self.conv(x)


batch_size = 8
channels = 64
kernel_size = 3
stride = 2
height = width = 48


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, kernel_size, stride]
