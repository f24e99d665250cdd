"""Two convolutions over time with GELU, as before a speech encoder, in float16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, mels, width, frames):
        super().__init__()
        self.conv1 = nn.Conv1d(mels, width, 3, padding=1, dtype=torch.float16)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1, dtype=torch.float16)
        self.places = nn.Parameter(torch.randn(frames // 2, width, dtype=torch.float16))

    def forward(self, x):
        return F.gelu(self.conv2(F.gelu(self.conv1(x)))).transpose(1, 2) + self.places


batch = 8
mels = 80
width = 768
half = 1500


def get_inputs():
    return [torch.randn(batch, mels, 2 * half, dtype=torch.float16)]


def get_init_inputs():
    return [mels, width, 2 * half]
