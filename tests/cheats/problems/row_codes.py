"""Whole numbers of 8 bits by a scale for each row, which is no smaller than the type's own epsilon."""

import torch
import torch.nn as nn

rows, columns = 24, 96


class Model(nn.Module):
    def forward(self, x):
        x = x.float()
        scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).eps) / 127.0
        return torch.round(x / scale).to(torch.int8), scale


def get_inputs():
    return [torch.randn(rows, columns, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
