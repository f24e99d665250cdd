"""Causal attention that reaches back over a window only, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, q, k, v):
        at = torch.arange(q.shape[2], device=q.device)
        behind = at[:, None] - at[None, :]
        return F.scaled_dot_product_attention(q, k, v, (behind >= 0) & (behind < self.window))


batch = 1
heads = 16
tokens = 4096
size = 128
window = 1024


def get_inputs():
    return [torch.randn(batch, heads, tokens, size, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return [window]
