import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 40
width = 64


class Model(nn.Module):
    """In evaluation mode from the beginning; in training mode it draws random numbers."""

    def __init__(self, share):
        super().__init__()
        self.drop = nn.Dropout(share)
        self.eval()

    def forward(self, x):
        return self.drop(F.relu(x))


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [0.1]
