"""A bottleneck of a residual network at inference, channels last, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, narrow):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, narrow, 1, bias=False, dtype=torch.float16)
        self.conv2 = nn.Conv2d(narrow, narrow, 3, padding=1, bias=False, dtype=torch.float16)
        self.conv3 = nn.Conv2d(narrow, channels, 1, bias=False, dtype=torch.float16)
        self.norm1, self.norm2 = (nn.BatchNorm2d(narrow, dtype=torch.float16).eval() for _ in range(2))
        self.norm3 = nn.BatchNorm2d(channels, dtype=torch.float16).eval()

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(x + self.norm3(self.conv3(y)))


batch = 64
channels = 256
narrow = 64
side = 56


def get_inputs():
    return [torch.randn(batch, channels, side, side, dtype=torch.float16).to(memory_format=torch.channels_last)]


def get_init_inputs():
    return [channels, narrow]
