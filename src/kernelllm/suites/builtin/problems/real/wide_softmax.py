"""Softmax over a large vocabulary, in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


rows = 512
vocabulary = 131072


def get_inputs():
    return [torch.randn(rows, vocabulary, dtype=torch.bfloat16) * 12]


def get_init_inputs():
    return []
