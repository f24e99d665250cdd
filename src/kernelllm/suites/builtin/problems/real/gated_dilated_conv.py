"""A layer of a speech synthesiser: a dilated convolution with a condition, a gate, a residual and a sum of skips, in float16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, condition, dilation):
        super().__init__()
        self.conv = nn.Conv1d(channels, 2 * channels, 3, padding=dilation, dilation=dilation, dtype=torch.float16)
        self.condition = nn.Conv1d(condition, 2 * channels, 1, dtype=torch.float16)
        self.out = nn.Conv1d(channels, 2 * channels, 1, dtype=torch.float16)

    def forward(self, x, mel, skips):
        value, gate = (self.conv(x) + self.condition(mel)).chunk(2, dim=1)
        residual, skip = self.out(torch.tanh(value) * torch.sigmoid(gate)).chunk(2, dim=1)
        return (x + residual) * 0.5**0.5, skips + skip


batch = 8
channels = 128
condition = 80
samples = 16384
dilation = 8


def get_inputs():
    return [torch.randn(batch, n, samples, dtype=torch.float16) for n in (channels, condition, channels)]


def get_init_inputs():
    return [channels, condition, dilation]
