"""A step of an optimiser that keeps the second moments of a matrix as means of its rows and columns, in float32."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, rate, decay, clip):
        super().__init__()
        self.rate, self.decay, self.clip = rate, decay, clip

    def forward(self, weight, grad, rows, columns):
        square = grad * grad + 1e-30
        rows = torch.lerp(square.mean(1), rows, self.decay)
        columns = torch.lerp(square.mean(0), columns, self.decay)
        update = grad * (rows / rows.mean()).rsqrt()[:, None] * columns.rsqrt()[None, :]
        update = update / (update.square().mean().sqrt() / self.clip).clamp_min(1.0)
        scale = weight.square().mean().sqrt().clamp_min(1e-3)
        return weight - self.rate * scale * update, rows, columns


height = 4096
width = 11008


def get_inputs():
    return [torch.randn(height, width), torch.randn(height, width), torch.rand(height) + 0.5, torch.rand(width) + 0.5]


def get_init_inputs():
    return [0.01, 0.99, 1.0]
