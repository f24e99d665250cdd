"""To fifteen levels of each row's largest number, which are ties in rows of simple fractions."""

import torch
import torch.nn as nn

rows = 24
columns = 96


class Model(nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 7
        return (x / scale).round().to(torch.int8)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
