"""Group norm with SiLU and its gradients, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, dtype=torch.bfloat16)

    def forward(self, x, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = F.silu(self.norm(x))
            grads = torch.autograd.grad(y, (x, self.norm.weight, self.norm.bias), grad)
        return y.detach(), *grads


batch = 8
channels = 320
groups = 32
side = 64


def get_inputs():
    return [torch.randn(batch, channels, side, side, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs():
    return [channels, groups]
