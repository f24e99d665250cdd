"""The gated feed-forward layer for a batch of single tokens, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.up = (nn.Linear(width, hidden, bias=False, dtype=torch.bfloat16) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


batch = 8
width = 4096
hidden = 14336


def get_inputs():
    return [torch.randn(batch, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, hidden]
