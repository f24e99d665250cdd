"""Stateful: batch normalisation in train mode keeps running statistics."""

import torch
import torch.nn as nn

batch = 32
features = 24


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [features]
