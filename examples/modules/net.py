"""Modules as they stand in somebody's project: no get_inputs, no sizes. The tutorial optimizes them as they are."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    """A gated feed-forward block with a norm in front and a residual around it."""

    def __init__(self, width, expansion=2):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, expansion * width)
        self.up = nn.Linear(width, expansion * width)
        self.down = nn.Linear(expansion * width, width)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def some_inputs():
    """What ``--inputs some_inputs`` calls: two sequences of 128 tokens."""
    return [torch.randn(2, 128, 256)]
