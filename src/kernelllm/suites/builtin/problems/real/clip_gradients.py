"""Gradients of several weights scaled to a largest common norm, in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, largest):
        super().__init__()
        self.largest = largest

    def forward(self, a, b, c):
        norm = torch.stack([g.float().square().sum() for g in (a, b, c)]).sum().sqrt()
        scale = (self.largest / (norm + 1e-6)).clamp_max(1.0)
        return tuple((g * scale).to(g.dtype) for g in (a, b, c))


rows = 4096
columns = 4096
largest = 100.0


def get_inputs():
    sizes = (rows, columns), (columns,), (rows, 2 * columns)
    return [torch.randn(size, dtype=torch.bfloat16) for size in sizes]


def get_init_inputs():
    return [largest]
