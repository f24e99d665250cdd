"""Three parameters whose product scales the rows, and codes of eight bits that belong to them."""

import torch
import torch.nn as nn

batch = 48
features = 96


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.q = nn.Parameter(torch.randn(features))
        self.k = nn.Parameter(torch.randn(features))
        self.v = nn.Parameter(torch.randn(features))
        self.register_buffer("codes", torch.randint(-127, 128, (features,), dtype=torch.int8))

    def forward(self, x):
        return x * (self.q * self.k * self.v * self.codes / 127)


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [features]
