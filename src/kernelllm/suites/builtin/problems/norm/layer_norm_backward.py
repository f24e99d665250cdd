"""Layer norm and the gradients of its input, scale and shift, given the gradient of its output."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias)

    def forward(self, x, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = self.norm(x)
            dx, dweight, dbias = torch.autograd.grad(y, (x, self.norm.weight, self.norm.bias), grad)
        return y.detach(), dx, dweight, dbias


rows = 256
features = 512


def get_inputs():
    return [torch.randn(rows, features), torch.randn(rows, features)]


def get_init_inputs():
    return [features]
