"""A linear layer and the gradients of its input, weight and bias, given the gradient of its output."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = self.linear(x)
            dx, dweight, dbias = torch.autograd.grad(y, (x, self.linear.weight, self.linear.bias), grad)
        return y.detach(), dx, dweight, dbias


batch_size = 128
in_features = 192
out_features = 160


def get_inputs():
    return [torch.randn(batch_size, in_features), torch.randn(batch_size, out_features)]


def get_init_inputs():
    return [in_features, out_features]
