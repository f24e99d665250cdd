"""A norm over heads of a size that kernels are often written for alone."""

import torch
import torch.nn as nn

tokens = 1024
head_dim = 128


class Model(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def get_inputs():
    return [torch.randn(tokens, head_dim)]


def get_init_inputs():
    return []
