"""Layer norm over the last dimension, with scale and shift."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return self.norm(x)


batch_size = 16
tokens = 64
features = 1024


def get_inputs():
    return [torch.randn(batch_size, tokens, features) + 1]


def get_init_inputs():
    return [features]
