"""Layer norm scaled, shifted and gated by a condition, as in a diffusion transformer, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.condition = nn.Linear(width, 3 * width, dtype=torch.bfloat16)

    def forward(self, x, condition, branch):
        shift, scale, gate = self.condition(F.silu(condition))[:, None].chunk(3, dim=-1)
        x = x + gate * branch
        return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift, x


batch = 8
tokens = 1024
width = 1152


def get_inputs():
    x, branch = (torch.randn(batch, tokens, width, dtype=torch.bfloat16) for _ in range(2))
    return [x, torch.randn(batch, width, dtype=torch.bfloat16), branch]


def get_init_inputs():
    return [width]
