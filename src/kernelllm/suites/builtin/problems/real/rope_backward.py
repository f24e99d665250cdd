"""Rotary positions and the gradient of what is rotated, in bfloat16."""

import torch
import torch.nn as nn


def rotated(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Model(nn.Module):
    def forward(self, x, cos, sin, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = rotated(x, cos, sin)
            (dx,) = torch.autograd.grad(y, x, grad)
        return y.detach(), dx


batch = 4
heads = 32
tokens = 2048
size = 128


def get_inputs():
    x, grad = (torch.randn(batch, heads, tokens, size, dtype=torch.bfloat16) for _ in range(2))
    angles = torch.rand(tokens, size) * 6.283
    return [x, angles.cos().bfloat16(), angles.sin().bfloat16(), grad]


def get_init_inputs():
    return []
