"""Average pooling without overlap and the gradient of its input, given the gradient of its output."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, kernel_size):
        super().__init__()
        self.kernel_size = kernel_size

    def forward(self, x, grad):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = F.avg_pool2d(x, self.kernel_size)
            (dx,) = torch.autograd.grad(y, x, grad)
        return y.detach(), dx


batch_size = 8
channels = 32
height = 24
width = 20
kernel_size = 2


def get_inputs():
    x = torch.randn(batch_size, channels, height * kernel_size, width * kernel_size)
    return [x, torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [kernel_size]
