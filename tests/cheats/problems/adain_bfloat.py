"""Statistics of a feature map are replaced by another's, in half precision; values deviate from each other far less than from zero."""

import torch
import torch.nn as nn

batch = 4
channels = 24
height = 20
width = 16


class Model(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x, scale, shift):
        mean = x.mean((2, 3), keepdim=True)
        deviation = (x.var((2, 3), keepdim=True) + self.eps).sqrt()
        return (x - mean) / deviation * scale[:, :, None, None] + shift[:, :, None, None]


def get_inputs():
    x = (1.05 + 0.01 * torch.randn(batch, channels, height, width)).to(torch.bfloat16)
    return [x, torch.rand(batch, channels).to(torch.bfloat16), torch.rand(batch, channels).to(torch.bfloat16)]


def get_init_inputs():
    return []
