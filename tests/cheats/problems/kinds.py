"""A text that the problem leaves at its default, a mask that it never gives, and a text among its inputs."""

import torch
import torch.nn as nn

rows = 48
columns = 100


class Model(nn.Module):
    def __init__(self, kind: str = "sum"):
        super().__init__()
        self.kind = kind

    def forward(self, x, scale, mask=None):
        x = x * 2 if scale == "double" else x
        x = x if mask is None else x.masked_fill(~mask, 0.0)
        return x.mean(-1) if self.kind == "mean" else x.sum(-1)


def get_inputs():
    return [torch.randn(rows, columns), "plain"]


def get_init_inputs():
    return []
