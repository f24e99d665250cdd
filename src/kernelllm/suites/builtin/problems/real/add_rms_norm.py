"""Residual addition and RMS norm before a layer of a language model, in bfloat16."""

import torch
import torch.nn as nn


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width, dtype=torch.bfloat16))

    def forward(self, x, residual):
        residual = residual + x
        return rms_norm(residual, self.weight), residual


tokens = 8192
width = 4096


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs():
    return [width]
