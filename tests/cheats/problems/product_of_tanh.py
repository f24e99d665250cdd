import torch
import torch.nn as nn

rows = 24
width = 32
outputs = 48


class Model(nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, width) * 0.1)

    def forward(self, x):
        return torch.relu(x @ torch.tanh(self.weight).t())


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width, outputs]
