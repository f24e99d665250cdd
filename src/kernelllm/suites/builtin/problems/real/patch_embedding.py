"""Patches of images as tokens: a strided convolution, a class token, positions, in float16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, patch, patches):
        super().__init__()
        self.conv = nn.Conv2d(3, width, patch, stride=patch, dtype=torch.float16)
        self.token = nn.Parameter(torch.randn(1, 1, width, dtype=torch.float16))
        self.places = nn.Parameter(torch.randn(1, patches + 1, width, dtype=torch.float16))

    def forward(self, x):
        x = self.conv(x).flatten(2).transpose(1, 2)
        return torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.places


batch = 64
side = 14
patch = 16
width = 768


def get_inputs():
    return [torch.randn(batch, 3, side * patch, side * patch, dtype=torch.float16)]


def get_init_inputs():
    return [width, patch, side * side]
