"""Convolution, batch norm in training and ReLU, with all gradients, in float32."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.scale, self.shift = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = F.relu(F.batch_norm(self.conv(x), None, None, self.scale, self.shift, training=True))
            grads = torch.autograd.grad(y, (x, self.conv.weight, self.scale, self.shift), grad)
        return y.detach(), *grads


batch = 32
channels = 128
side = 28


def get_inputs():
    return [torch.randn(batch, channels, side, side) for _ in range(2)]


def get_init_inputs():
    return [channels]
