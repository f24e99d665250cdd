"""Softmax over each row after division by a temperature."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, x):
        return torch.softmax(x / self.temperature, dim=-1)


rows = 1024
columns = 512
temperature = 0.3


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [temperature]
