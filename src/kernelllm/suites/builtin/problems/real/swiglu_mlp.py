"""The gated feed-forward layer of a language model, in bfloat16."""

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


batch = 1
tokens = 2048
width = 2048
hidden = 6144


def get_inputs():
    return [torch.randn(batch, tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, hidden]
