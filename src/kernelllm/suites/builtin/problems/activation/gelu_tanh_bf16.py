"""GELU in its tanh approximation, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x, approximate="tanh")


batch_size = 256
features = 4096


def get_inputs():
    return [torch.randn(batch_size, features, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
