"""Which experts a token goes to, with what weight, and how evenly they are used, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, experts, chosen):
        super().__init__()
        self.chosen = chosen
        self.gate = nn.Linear(width, experts, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        shares = self.gate(x).float().softmax(dim=-1)
        weights, which = shares.topk(self.chosen, dim=-1)
        used = F.one_hot(which, shares.shape[1]).sum(1).float().mean(0)
        return (weights / weights.sum(-1, keepdim=True)).to(x.dtype), (used * shares.mean(0)).sum()


tokens = 8192
width = 2048
experts = 64
chosen = 8


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, experts, chosen]
