"""RMS norm and the gradients of its input and scale, in bfloat16."""

import torch
import torch.nn as nn


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width, dtype=torch.bfloat16))

    def forward(self, x, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = rms_norm(x, self.weight)
            dx, dweight = torch.autograd.grad(y, (x, self.weight), grad)
        return y.detach(), dx, dweight


tokens = 8192
width = 2048


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs():
    return [width]
