"""Layer norm and its gradients, in float16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, dtype=torch.float16)

    def forward(self, x, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = self.norm(x)
            grads = torch.autograd.grad(y, (x, self.norm.weight, self.norm.bias), grad)
        return y.detach(), *grads


tokens = 16384
width = 1024


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.float16) for _ in range(2)]


def get_init_inputs():
    return [width]
