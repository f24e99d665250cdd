"""The norm behind a state-space layer, of each group of channels times its gate, and its gradients, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, groups, size):
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.ones(groups * size, dtype=torch.bfloat16))

    def forward(self, x, gate, grad):
        with torch.enable_grad():
            x, gate = x.detach().requires_grad_(), gate.detach().requires_grad_()
            gated = (x.float() * F.silu(gate.float())).unflatten(2, (self.groups, -1))
            normal = gated * torch.rsqrt(gated.square().mean(-1, keepdim=True) + 1e-5)
            y = normal.flatten(2).to(x.dtype) * self.weight
            grads = torch.autograd.grad(y, (x, gate, self.weight), grad)
        return y.detach(), *grads


batch = 4
tokens = 2048
groups = 8
size = 512


def get_inputs():
    return [torch.randn(batch, tokens, groups * size, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return [groups, size]
