import torch
import torch.nn as nn


class Model(nn.Module):
    """Linear, ReLU, residual."""

    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x, residual):
        return torch.relu(self.linear(x)) + residual


batch, inner, outer = 70, 100, 130


def get_inputs():
    return [torch.randn(batch, inner), torch.randn(batch, outer)]


def get_init_inputs():
    return [inner, outer]
